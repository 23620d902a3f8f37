"""One rank in a few kilobytes: what it compiled, why again, what it ran in which order.

Pure, picklable and mergeable: ranks can be summarised anywhere, and compared where the summaries
meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from compilediag.diagnosis.causes.of_run import RunCauses
from compilediag.timeline.counts import counts_of, is_compile
from compilediag.timeline.timeline import BreakSite, Compile, Frame, Timeline
from compilediag_harness.wire import Location

IDS_KEPT = 2000
"""Most compiles, causes, sites and graphs kept of a rank."""

OPERATIONS_KEPT = 4096
"""Most collectives kept of a rank."""

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
    """"0/0 forward: 1 hit, 0 misses": what the caches answered in each."""
    causes: tuple[str, ...]
    """"CD101 capture at train.py:22, 3 times": primary causes of recompiles."""
    breaks: tuple[str, ...]
    """"train.py:30": places of graph breaks."""
    collectives: tuple[str, ...]
    """"0/0: all_reduce": every collective of every graph, in order."""


def summaries_of(timeline: Timeline, causes: RunCauses) -> tuple[RankSummary, ...]:
    """One summary a rank, ascending; empty where the processes have no ranks."""
    indexes: dict[int, list[int]] = {}
    for process in timeline.processes:
        if process.rank is not None:
            indexes.setdefault(process.rank, []).append(process.index)
    parts = _Parts.of(timeline)
    return tuple(_summary(rank, indexes[rank], parts, causes) for rank in sorted(indexes))


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a Timeline holds, by process."""

    compiles: dict[int, list[Compile]]
    walls: dict[int, list[float]]
    frames: dict[int, list[Frame]]
    breaks: dict[int, list[BreakSite]]
    collectives: dict[int, list[str]]

    @classmethod
    def of(cls, timeline: Timeline) -> _Parts:
        parts = cls({}, {}, {}, {}, {})
        for item in timeline.compiles:
            parts.compiles.setdefault(item.process, []).append(item)
        for step in timeline.steps:
            parts.walls.setdefault(step.process, []).append(step.wall_s)
        for frame in timeline.frames:
            parts.frames.setdefault(frame.key.process, []).append(frame)
        for site in timeline.breaks:
            for process in site.processes:
                parts.breaks.setdefault(process, []).append(site)
        for schedule in timeline.collectives:
            told = [f"{schedule.compile_id}: {name}" for name in schedule.operations]
            parts.collectives.setdefault(schedule.process, []).extend(told)
        return parts


def _summary(rank: int, indexes: Sequence[int], parts: _Parts, causes: RunCauses) -> RankSummary:
    compiles = [item for index in indexes for item in parts.compiles.get(index, ())]
    frames = [item for index in indexes for item in parts.frames.get(index, ())]
    sites = [item for index in indexes for item in parts.breaks.get(index, ())]
    counts = counts_of(frames, compiles, sites)
    guarded = [item for item in compiles if is_compile(item)]
    none: list[float] = []
    walls = max((parts.walls.get(index, none) for index in indexes), key=len, default=none)
    breaks = sorted({f"{site.file}:{site.line}" for site in sites})
    return RankSummary(
        rank=rank,
        processes=len(indexes),
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
        ids=tuple(sorted(_named(item) for item in guarded)[:IDS_KEPT]),
        cached=tuple(sorted(_answers(item) for item in guarded if _asked(item))[:IDS_KEPT]),
        causes=_primary_causes(guarded, causes),
        breaks=tuple(breaks[:IDS_KEPT]),
        collectives=tuple(name for index in indexes for name in parts.collectives.get(index, ()))[
            :OPERATIONS_KEPT
        ],
    )


def _named(item: Compile) -> str:
    epoch = f" after reset {item.epoch}" if item.epoch else ""
    return f"{item.compile_id} {item.frame.function}{epoch}"


def _asked(item: Compile) -> bool:
    """The caches were asked at all: backends without one count zeros."""
    return bool(item.cache_hits or item.cache_misses)


def _answers(item: Compile) -> str:
    return f"{_named(item)}: {item.cache_hits or 0} hits, {item.cache_misses or 0} misses"


def _primary_causes(compiles: Iterable[Compile], causes: RunCauses) -> tuple[str, ...]:
    counts: dict[str, int] = {}
    for item in compiles:
        for cause in causes.of(item.recompile)[:1] if item.recompile is not None else ():
            told = f"{cause.rule} {cause.variable or cause.guard[:80]}{_at(cause.location)}"
            counts[told] = counts.get(told, 0) + 1
    told = [f"{cause}, {'once' if n == 1 else f'{n} times'}" for cause, n in counts.items()]
    return tuple(sorted(told)[:IDS_KEPT])


def _at(place: Location | None) -> str:
    return "" if place is None else f" at {place.file}:{place.line}"


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _median(walls: Sequence[float]) -> float | None:
    steady = walls[WARMUP_STEPS:] if len(walls) > 2 * WARMUP_STEPS else walls
    return median(steady) if steady else None
