"""One rank in a few kilobytes: what it compiled, why again, what it ran in which order.

Pure, picklable and mergeable: ranks can be summarised anywhere, and compared where the summaries
meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from compilediag.diagnosis.causes import causes_of
from compilediag.timeline.timeline import Compile, Timeline
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


def summaries_of(timeline: Timeline) -> tuple[RankSummary, ...]:
    """One summary a rank, ascending; empty where the processes have no ranks."""
    indexes: dict[int, list[int]] = {}
    for process in timeline.processes:
        if process.rank is not None:
            indexes.setdefault(process.rank, []).append(process.index)
    parts = _Parts.of(timeline)
    return tuple(_summary(rank, indexes[rank], parts) for rank in sorted(indexes))


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a Timeline holds, by process."""

    compiles: dict[int, list[Compile]]
    walls: dict[int, list[float]]
    frames: dict[int, int]
    eager: dict[int, int]
    breaks: dict[int, list[str]]
    collectives: dict[int, list[str]]

    @classmethod
    def of(cls, timeline: Timeline) -> _Parts:
        parts = cls({}, {}, {}, {}, {}, {})
        for item in timeline.compiles:
            parts.compiles.setdefault(item.process, []).append(item)
        for step in timeline.steps:
            parts.walls.setdefault(step.process, []).append(step.wall_s)
        for frame in timeline.frames:
            process = frame.key.process
            parts.frames[process] = parts.frames.get(process, 0) + 1
            parts.eager[process] = parts.eager.get(process, 0) + frame.ran_eager
        for site in timeline.breaks:
            for process in site.processes:
                parts.breaks.setdefault(process, []).append(f"{site.file}:{site.line}")
        for schedule in timeline.collectives:
            told = [f"{schedule.compile_id}: {name}" for name in schedule.operations]
            parts.collectives.setdefault(schedule.process, []).extend(told)
        return parts


def _summary(rank: int, indexes: Sequence[int], parts: _Parts) -> RankSummary:
    compiles = [item for index in indexes for item in parts.compiles.get(index, ())]
    guarded = [item for item in compiles if item.forward and item.guarded]
    again = [item for item in guarded if item.recompile is not None]
    none: list[float] = []
    walls = max((parts.walls.get(index, none) for index in indexes), key=len, default=none)
    breaks = sorted({site for index in indexes for site in parts.breaks.get(index, ())})
    return RankSummary(
        rank=rank,
        processes=len(indexes),
        frames=sum(parts.frames.get(index, 0) for index in indexes),
        compiles=len(guarded),
        recompiles=len(again),
        graph_breaks=len(breaks),
        eager_fallbacks=sum(parts.eager.get(index, 0) for index in indexes),
        compile_s=sum(item.seconds for item in compiles),
        cache_hits=_sum(item.cache_hits for item in compiles),
        cache_misses=_sum(item.cache_misses for item in compiles),
        steps=len(walls),
        step_median_s=_median(walls),
        ids=tuple(sorted(_named(item) for item in guarded)[:IDS_KEPT]),
        cached=tuple(sorted(_answers(item) for item in guarded if _asked(item))[:IDS_KEPT]),
        causes=_causes(again),
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


def _causes(again: Iterable[Compile]) -> tuple[str, ...]:
    counts: dict[str, int] = {}
    for item in again:
        assert item.recompile is not None
        for cause in causes_of(item.recompile)[:1]:
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
