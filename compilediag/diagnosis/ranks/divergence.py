"""Compares the ranks of a run, each by a summary of it: where they diverge, and which are slow.

All ranks of a data-parallel run compile the same graphs; one that does not makes all others wait
in the next collective, or hangs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from statistics import median

from msgspec.structs import replace

from compilediag.diagnosis.causes.run_causes import RunCauses
from compilediag.receipt.schema.comparisons import (
    RankDivergence,
    RankRow,
    RanksSection,
    RankStraggler,
    RankTotals,
)
from compilediag.receipt.schema.record import make_record
from compilediag.timeline.frames import compute_counts, is_compile
from compilediag.timeline.timeline import BreakSite, Compile, Frame, Timeline

MAX_IDS = 2000
"""Most compiles, causes, sites and graphs stored of a rank."""

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


@dataclass(frozen=True, slots=True)
class _ProcessRecord:
    """The part of a Timeline that one process made."""

    compiles: list[Compile] = field(default_factory=list[Compile])
    walls: list[float] = field(default_factory=list[float])
    frames: list[Frame] = field(default_factory=list[Frame])
    breaks: list[BreakSite] = field(default_factory=list[BreakSite])
    collectives: list[str] = field(default_factory=list[str])


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
    }


SHOWN = 5
"""Most differences named of one group of ranks."""

MAX_GROUPS = 200
"""Most groups of ranks listed of one aspect."""

MAX_STRAGGLERS = 16


@dataclass(frozen=True, slots=True)
class RankComparison:
    """The ranks of one run, compared."""

    ranks: tuple[RankSummary, ...]
    missing: tuple[int, ...]
    """Ranks that were expected and of which nothing was found."""
    divergences: tuple[RankDivergence, ...]
    stragglers: tuple[RankStraggler, ...]
    """Slowest first; ranks slower than the median only."""
    left_out: int = 0
    """Groups of ranks that differ and are not listed."""
    differing: int = 0
    """Ranks that differ in any respect, those that are not listed included."""


def compare_ranks(summaries: Iterable[RankSummary], expected: int | None) -> RankComparison:
    """Compare every rank with what most ranks do; `expected` is the world size, where known."""
    by_rank = {summary.rank: summary for summary in summaries}
    by_rank = {rank: by_rank[rank] for rank in sorted(by_rank)}
    values = {rank: list_values(summary) for rank, summary in by_rank.items()}
    divergences: list[RankDivergence] = []
    differing: set[int] = set()
    left_out = 0
    for aspect in next(iter(values.values()), dict[str, tuple[str, ...]]()):
        groups: dict[tuple[str, ...], list[int]] = {}
        for rank in by_rank:
            groups.setdefault(values[rank][aspect], []).append(rank)
        # The largest group is right, the lowest of equals.
        usual, *others = sorted(groups.values(), key=lambda ranks: (-len(ranks), ranks[0]))
        others.sort()
        left_out += max(0, len(others) - MAX_GROUPS)
        differing.update(*others)
        for ranks in others[:MAX_GROUPS]:
            differ = _find_first_diff if aspect == "collectives" else _list_diffs
            here, there = differ(values[ranks[0]][aspect], values[usual[0]][aspect])
            divergence = RankDivergence(
                aspect=aspect,
                ranks=tuple(ranks),
                like_rank=usual[0],
                only_here=tuple(here[:SHOWN]),
                only_there=tuple(there[:SHOWN]),
                more=sum(max(0, len(differences) - SHOWN) for differences in (here, there)),
                count=len(ranks),
            )
            divergences.append(divergence)
    return RankComparison(
        ranks=tuple(by_rank.values()),
        missing=tuple(sorted(set(range(expected or 0)).difference(by_rank))),
        divergences=tuple(divergences),
        stragglers=_find_stragglers(by_rank),
        left_out=left_out,
        differing=len(differing),
    )


def _list_diffs(value: tuple[str, ...], usual: tuple[str, ...]) -> tuple[list[str], list[str]]:
    here, there = Counter(value), Counter(usual)
    return list((here - there).elements()), list((there - here).elements())


def _find_first_diff(value: tuple[str, ...], usual: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Find where the order differs first: what follows is a consequence."""
    for number, names in enumerate(zip_longest(value, usual), start=1):
        if names[0] != names[1]:
            here, there = ([f"collective {number} is {name}"] if name else [] for name in names)
            return here, there
    return [], []


def _find_stragglers(by_rank: Mapping[int, RankSummary]) -> tuple[RankStraggler, ...]:
    """Find slow ranks by the time of a step where it was measured, else by all compile seconds."""
    what = "step"
    times = {r: row.step_median_s for r, row in by_rank.items() if row.step_median_s is not None}
    if len(times) < 2:
        what, times = "compile", {rank: row.compile_s for rank, row in by_rank.items()}
    usual = median(times.values()) if len(times) > 1 else 0.0
    if usual <= 0:
        return ()
    slow = [
        RankStraggler(rank=rank, what=what, seconds=seconds, ratio=seconds / usual)
        for rank, seconds in times.items()
        if seconds > usual
    ]
    return tuple(sorted(slow, key=lambda row: (-row.seconds, row.rank))[:MAX_STRAGGLERS])


MAX_ROWS = 4096
MAX_DIVERGENCES = 200
MAX_MISSING = 100_000
MAX_NAMED_RANKS = 64
"""Most ranks named of one divergence."""


def build_ranks_section(
    timeline: Timeline, causes: RunCauses, expected: int | None
) -> RanksSection | None:
    """Build the section of ranks. None where a launcher started fewer than two."""
    ranks = {process.rank for process in timeline.processes} - {None}
    if len(ranks) < 2 and (expected or 1) < 2:
        return None
    comparison = compare_ranks(summarize_ranks(timeline, causes), expected)
    measured = timeline.can_observe("metrics_rows")
    counts = ("frames", "compiles", "recompiles", "eager_fallbacks")
    totals = RankTotals(
        ranks=len(comparison.ranks),
        **{name: sum(getattr(summary, name) for summary in comparison.ranks) for name in counts},
        compile_s=sum(summary.compile_s for summary in comparison.ranks) if measured else None,
    )
    rows = (
        make_record(RankRow, summary, compile_s=summary.compile_s if measured else None)
        for summary in comparison.ranks[:MAX_ROWS]
    )
    return RanksSection(
        expected=expected,
        missing=comparison.missing[:MAX_MISSING],
        missing_count=len(comparison.missing),
        rows=tuple(rows),
        divergences=tuple(
            replace(divergence, ranks=divergence.ranks[:MAX_NAMED_RANKS])
            for divergence in comparison.divergences[:MAX_DIVERGENCES]
        ),
        stragglers=comparison.stragglers if measured else (),
        totals=totals,
        differing=comparison.differing,
        divergences_left_out=comparison.left_out
        + max(0, len(comparison.divergences) - MAX_DIVERGENCES),
    )
