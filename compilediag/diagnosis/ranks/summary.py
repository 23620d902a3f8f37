"""One rank in some tens of kilobytes: what it compiled, why again, what it ran in which order.

Pure, picklable and mergeable: ranks can be summarised anywhere, and compared where the summaries
meet.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from compilediag.diagnosis.causes.of_run import RunCauses
from compilediag.diagnosis.ranks.cache_keys import key_parts
from compilediag.timeline.caches import ProcessCaches
from compilediag.timeline.counts import counts_of, is_compile
from compilediag.timeline.timeline import BreakSite, Compile, Frame, Timeline

MAX_IDS = 2000
"""Most compiles, causes, sites and graphs kept of a rank."""

MAX_KEY_PARTS = 4000
"""Most components of cache keys kept of a rank: those of ten graphs, and the settings."""

MAX_OPERATIONS = 4096
"""Most collectives kept of a rank."""

WARMUP_STEPS = 2
"""First steps, which compile, are left out of the median where there are more."""


@dataclass(frozen=True, slots=True)
class RankCounts:
    """The numbers of one rank, or of the processes of one source that have none."""

    rank: int | None
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


@dataclass(frozen=True, slots=True)
class RankSummary(RankCounts):
    """One rank. Tuples are sorted, or in the order in which things happened where that matters."""

    rank: int
    ids: tuple[str, ...]
    """"0/1 forward": compiles that ended with guarded code, with the epoch where it is not 0."""
    cached: tuple[str, ...]
    """"0/0 forward: 1 hit, 0 misses": what the caches answered in each."""
    causes: tuple[str, ...]
    """"CD101 capture at train.py:22, 3 times": primary causes of recompiles."""
    breaks: tuple[str, ...]
    """"train.py:30": places of graph breaks."""
    collectives: tuple[str, ...]
    """"0/0: all_reduce": every collective of every graph, in order."""
    key_parts: tuple[str, ...] = ()
    """Of what the keys of its compile caches are made: see `cache_keys.py`."""


@dataclass(frozen=True, slots=True)
class _ProcessRecord:
    """What a Timeline holds of one process."""

    compiles: list[Compile] = field(default_factory=list[Compile])
    walls: list[float] = field(default_factory=list[float])
    frames: list[Frame] = field(default_factory=list[Frame])
    breaks: list[BreakSite] = field(default_factory=list[BreakSite])
    collectives: list[str] = field(default_factory=list[str])
    caches: list[ProcessCaches] = field(default_factory=list[ProcessCaches])


def summaries_of(timeline: Timeline, causes: RunCauses) -> tuple[RankSummary, ...]:
    """One summary a rank, ascending; empty where the processes have no ranks."""
    records: dict[int, _ProcessRecord] = defaultdict(_ProcessRecord)
    for item in timeline.compiles:
        records[item.process].compiles.append(item)
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
    return tuple(_summary(rank, by_rank[rank], causes) for rank in sorted(by_rank))


def _summary(rank: int, records: Sequence[_ProcessRecord], causes: RunCauses) -> RankSummary:
    compiles = [item for record in records for item in record.compiles]
    guarded = [item for item in compiles if is_compile(item)]
    sites = [site for record in records for site in record.breaks]
    counts = counts_of([item for record in records for item in record.frames], compiles, sites)
    walls = max((record.walls for record in records), key=len)
    breaks = sorted({f"{site.file}:{site.line}" for site in sites})
    collectives = [name for record in records for name in record.collectives]
    return RankSummary(
        rank=rank,
        processes=len(records),
        frames=counts.frames,
        compiles=counts.compiles,
        recompiles=counts.recompiles,
        graph_breaks=counts.graph_breaks,
        eager_fallbacks=counts.eager_fallbacks,
        compile_s=sum(item.seconds for item in compiles),
        cache_hits=_sum(item.cache_hits for item in compiles),
        cache_misses=_sum(item.cache_misses for item in compiles),
        steps=len(walls),
        step_median_s=_median(walls),
        ids=tuple(sorted(map(_named, guarded))[:MAX_IDS]),
        cached=tuple(sorted(_cache_answers(guarded))[:MAX_IDS]),
        causes=_primary_causes(guarded, causes),
        breaks=tuple(breaks[:MAX_IDS]),
        collectives=tuple(collectives[:MAX_OPERATIONS]),
        key_parts=key_parts(
            (item for record in records for item in record.caches),
            {(item.compile_id, item.epoch): _named(item) for item in compiles},
            MAX_KEY_PARTS,
        ),
    )


def _named(item: Compile) -> str:
    epoch = f" after reset {item.epoch}" if item.epoch else ""
    return f"{item.compile_id} {item.frame.function}{epoch}"


def _cache_answers(compiles: Iterable[Compile]) -> Iterable[str]:
    for item in compiles:
        # Backends without a cache count zeros.
        if item.cache_hits or item.cache_misses:
            yield f"{_named(item)}: {item.cache_hits or 0} hits, {item.cache_misses or 0} misses"


def _primary_causes(compiles: Iterable[Compile], causes: RunCauses) -> tuple[str, ...]:
    counts: Counter[str] = Counter()
    for item in compiles:
        for cause in causes.of(item.recompile)[:1] if item.recompile is not None else ():
            at = cause.location
            line = "" if at is None else f" at {at.file}:{at.line}"
            counts[f"{cause.rule} {cause.variable or cause.guard[:80]}{line}"] += 1
    named = (f"{cause}, {'once' if n == 1 else f'{n} times'}" for cause, n in counts.items())
    return tuple(sorted(named)[:MAX_IDS])


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _median(walls: Sequence[float]) -> float | None:
    steady = walls[WARMUP_STEPS:] if len(walls) > 2 * WARMUP_STEPS else walls
    return median(steady) if steady else None
