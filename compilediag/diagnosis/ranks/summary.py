"""Summaries of ranks in some tens of kilobytes, to be compared.

The index of the device is part of cache keys and differs by design: it is left out, and so is the
digest of a graph that may hold it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from compilediag.diagnosis.causes.run_causes import RunCauses
from compilediag.diagnosis.figures.key_difference import describe_component, get_digest
from compilediag.timeline.compiles import ProcessCaches
from compilediag.timeline.frames import compute_counts, is_compile
from compilediag.timeline.timeline import BreakSite, Compile, Frame, Timeline
from compilediag_harness.wire import AOT_AUTOGRAD, FX_GRAPH, Component

GRAPH = "gm"
"""torch's name of the graph among the components of a key."""

_BY_DEVICE = re.compile(r"fx_kwargs\[boxed_forward_device_index\]")
_INDEX = re.compile(r"(index=|\b(?:cuda|xpu|hpu|mtia):)\d+")


def list_key_parts(
    caches: Iterable[ProcessCaches], names: Mapping[tuple[str, int], str]
) -> tuple[str, ...]:
    """List lines as `0/0 forward: input 0 of the graph = torch.float32, … (3f9ab2c1)`, sorted: each
    component of each key, and each setting of the compiler once. Equal lines are equal values.
    `caches`: of the processes of one rank; `names`: of compiles, by compile id and epoch."""
    lines: set[str] = set()
    for part in caches:
        for components in (part.settings or {}).values():
            lines.update(_format_line("settings", component) for component in components)
        met: Counter[str] = Counter()
        for lookup in part.lookups:
            if lookup.cache not in (FX_GRAPH, AOT_AUTOGRAD) or not lookup.compile_id:
                continue
            at = names.get((lookup.compile_id, lookup.epoch), lookup.compile_id)
            at += "" if lookup.cache == FX_GRAPH else ", AOTAutograd"
            met[at] += 1
            at = at if met[at] == 1 else f"{at}, graph {met[at]}"
            has_index = any(_INDEX.search(value) for _, value in lookup.components)
            lines.update(
                _format_line(at, component)
                for component in lookup.components
                if not _BY_DEVICE.fullmatch(component[0])
                and not (has_index and component[0] == GRAPH)
            )
    return tuple(sorted(lines)[:MAX_KEY_PARTS])


def find_key_diffs(lines: tuple[str, ...], usual: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Find the lines of only one of two ranks: those of the first, those of the second. A lookup
    that only one of them made or described is no difference of keys."""
    only: list[list[str]] = []
    for here, there in ((lines, usual), (usual, lines)):
        described, equal = {_get_lookup(line) for line in there}, set(there)
        only.append([line for line in here if line not in equal and _get_lookup(line) in described])
    return only[0], only[1]


def _get_lookup(line: str) -> str:
    return line.partition(": ")[0]


def _format_line(at: str, component: Component) -> str:
    """Format one component. The digest of a value that holds the index of a device is that of one
    rank: the text stands for it, as far as it goes."""
    name, value = component
    digest, text = get_digest(value), value.partition(" ")[2]
    on_any = _INDEX.sub(r"\1N", text)
    end = f"({digest})" if on_any == text else "(on the device of the rank)"
    return f"{at}: {describe_component(name)} = {on_any} {end}"


MAX_IDS = 2000
"""Most compiles, causes, sites and graphs stored of a rank."""

MAX_KEY_PARTS = 4000
"""Most components of cache keys stored of a rank: those of ten graphs, and the settings."""

MAX_OPERATIONS = 4096
"""Most collectives stored of a rank."""

WARMUP_STEPS = 2
"""First steps, which compile, are left out of the median where there are more."""


@dataclass(frozen=True, slots=True)
class RankSummary:
    """One rank. Tuples are sorted, or in the order in which things happened where that matters."""

    rank: int
    processes: int
    frames: int
    compiles: int
    recompiles: int
    graph_breaks: int
    eager_fallbacks: int
    compile_s: float
    cache_hits: int | None
    """None where torch did not count them."""
    cache_misses: int | None
    steps: int
    step_median_s: float | None
    ids: tuple[str, ...]
    """"0/1 forward": compiles that ended with guarded code, with the epoch where it is not 0."""
    cached: tuple[str, ...]
    """"0/0 forward: 1 hit, 0 misses": the outcome of lookups in each."""
    causes: tuple[str, ...]
    """"CD101 capture at train.py:22, 3 times": primary causes of recompiles."""
    breaks: tuple[str, ...]
    """"train.py:30": places of graph breaks."""
    collectives: tuple[str, ...]
    """"0/0: all_reduce": every collective of every graph, in order."""
    key_parts: tuple[str, ...] = ()
    """Of what the keys of its compile caches are made: see `list_key_parts`."""


@dataclass(frozen=True, slots=True)
class _ProcessRecord:
    """The part of a Timeline that one process made."""

    compiles: list[Compile] = field(default_factory=list[Compile])
    walls: list[float] = field(default_factory=list[float])
    frames: list[Frame] = field(default_factory=list[Frame])
    breaks: list[BreakSite] = field(default_factory=list[BreakSite])
    collectives: list[str] = field(default_factory=list[str])
    caches: list[ProcessCaches] = field(default_factory=list[ProcessCaches])


def summarize_ranks(timeline: Timeline, causes: RunCauses) -> tuple[RankSummary, ...]:
    """Summarize each rank, ascending; empty where the processes have no ranks."""
    records: dict[int, _ProcessRecord] = defaultdict(_ProcessRecord)
    for attempt in timeline.compiles:
        records[attempt.process].compiles.append(attempt)
    for step in timeline.steps:
        records[step.process].walls.append(step.wall_s)
    for frame in timeline.frames:
        records[frame.key.process].frames.append(frame)
    for site in timeline.breaks:
        for process in site.processes:
            records[process].breaks.append(site)
    for schedule in timeline.collectives:
        named = (f"{schedule.compile_id}: {name}" for name in schedule.operations)
        records[schedule.process].collectives.extend(named)
    for caches in timeline.caches:
        records[caches.process].caches.append(caches)
    by_rank: dict[int, list[_ProcessRecord]] = defaultdict(list)
    for process in timeline.processes:
        if process.rank is not None:
            by_rank[process.rank].append(records[process.index])
    return tuple(_summarize_rank(rank, by_rank[rank], causes) for rank in sorted(by_rank))


def _summarize_rank(rank: int, records: Sequence[_ProcessRecord], causes: RunCauses) -> RankSummary:
    compiles = [event for part in records for event in part.compiles]
    guarded = [event for event in compiles if is_compile(event)]
    sites = [site for part in records for site in part.breaks]
    counts = compute_counts([frame for part in records for frame in part.frames], compiles, sites)
    walls = max((part.walls for part in records), key=len)
    steady = walls[WARMUP_STEPS:] if len(walls) > 2 * WARMUP_STEPS else walls
    hits = [event.cache_hits for event in compiles if event.cache_hits is not None]
    misses = [event.cache_misses for event in compiles if event.cache_misses is not None]
    outcomes = (
        f"{_name_compile(event)}: {event.cache_hits or 0} hits, {event.cache_misses or 0} misses"
        for event in guarded
        if event.cache_hits or event.cache_misses  # backends without a cache count zeros
    )
    primary: Counter[str] = Counter()
    for event in guarded:
        for cause in causes.get_causes(event.recompile)[:1] if event.recompile is not None else ():
            at = cause.location
            line = "" if at is None else f" at {at.file}:{at.line}"
            primary[f"{cause.rule} {cause.variable or cause.guard[:80]}{line}"] += 1
    named = (f"{cause}, {'once' if n == 1 else f'{n} times'}" for cause, n in primary.items())
    breaks = sorted({f"{site.file}:{site.line}" for site in sites})
    collectives = [name for part in records for name in part.collectives]
    return RankSummary(
        rank=rank,
        processes=len(records),
        frames=counts.frames,
        compiles=counts.compiles,
        recompiles=counts.recompiles,
        graph_breaks=counts.graph_breaks,
        eager_fallbacks=counts.eager_fallbacks,
        compile_s=sum(event.seconds for event in compiles),
        cache_hits=sum(hits) if hits else None,
        cache_misses=sum(misses) if misses else None,
        steps=len(walls),
        step_median_s=median(steady) if steady else None,
        ids=tuple(sorted(map(_name_compile, guarded))[:MAX_IDS]),
        cached=tuple(sorted(outcomes)[:MAX_IDS]),
        causes=tuple(sorted(named)[:MAX_IDS]),
        breaks=tuple(breaks[:MAX_IDS]),
        collectives=tuple(collectives[:MAX_OPERATIONS]),
        key_parts=list_key_parts(
            (caches for part in records for caches in part.caches),
            {(event.compile_id, event.epoch): _name_compile(event) for event in compiles},
        ),
    )


def _name_compile(attempt: Compile) -> str:
    epoch = f" after reset {attempt.epoch}" if attempt.epoch else ""
    return f"{attempt.compile_id} {attempt.frame.function}{epoch}"


def list_values(summary: RankSummary) -> dict[str, tuple[str, ...]]:
    """List what the ranks are compared by, by aspect."""
    return {
        "compile_ids": summary.ids,
        "recompile_causes": summary.causes,
        "graph_breaks": summary.breaks,
        "collectives": summary.collectives,
        "cache_hits": summary.cached,
        "cache_keys": summary.key_parts,
    }
