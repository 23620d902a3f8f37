"""Step times summarised: exact figures, and a sketch that can be merged between runs and ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

SUB_BUCKETS = 256
"""Equal-width buckets in each power of two."""

RELATIVE_ERROR = 0.002
"""Bound on |middle of a bucket - value| / value: half a bucket is 1/512 of a power of two."""

SHORTEST_S = 1e-9
"""Shorter durations, zero included, count as this: the clock's resolution."""

SPIKE_RATIO = 2.0
"""A spike takes more than this many times the median step after warm-up."""

SPIKES_KEPT = 64


def sketch_of(durations: Iterable[tuple[float, int]]) -> dict[str, int]:
    """Counts by log-linear bucket, in order, of (seconds, how often). Sketches of parts add up to
    that of the whole."""
    counts: dict[int, int] = {}
    for value_s, count in durations:
        index = bucket_of(value_s)
        counts[index] = counts.get(index, 0) + count
    return {str(index): counts[index] for index in sorted(counts)}


def bucket_of(value_s: float) -> int:
    """The bucket of a duration: `SUB_BUCKETS` for each power of two, 0 for one at 1 s."""
    mantissa, exponent = math.frexp(max(value_s, SHORTEST_S))
    return (exponent - 1) * SUB_BUCKETS + int((2 * mantissa - 1) * SUB_BUCKETS)


@dataclass(frozen=True, slots=True)
class StepFigures:
    """Figures of a series of step times, in seconds; percentiles are by nearest rank."""

    count: int
    mean: float
    median: float
    min: float
    max: float
    p90: float
    p99: float


def figures_of(walls_s: Sequence[float]) -> StepFigures | None:
    """The figures of all steps, warm-up included; None without a step."""
    if not walls_s:
        return None
    ordered = sorted(walls_s)
    return StepFigures(
        count=len(ordered),
        mean=fmean(ordered),
        median=median(ordered),
        min=ordered[0],
        max=ordered[-1],
        p90=_nearest_rank(ordered, 0.90),
        p99=_nearest_rank(ordered, 0.99),
    )


def _nearest_rank(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spike_positions(walls_s: Sequence[float], warmup: int) -> tuple[int, ...]:
    """Positions of the steps after warm-up that stand out, in order; the longest if too many."""
    after = walls_s[warmup:]
    if not after:
        return ()
    bar = SPIKE_RATIO * median(after)
    found = [warmup + index for index, wall in enumerate(after) if wall > bar]
    longest = sorted(found, key=lambda index: -walls_s[index])[:SPIKES_KEPT]
    return tuple(sorted(longest))


def warmup_of(numbers: Sequence[int], first_compile_steps: frozenset[int]) -> int:
    """Leading steps in which some frame was compiled for the first time."""
    for index, number in enumerate(numbers):
        if number not in first_compile_steps:
            return index
    return len(numbers)
