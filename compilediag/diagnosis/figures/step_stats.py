"""Step times summarised: exact figures, and a sketch that can be merged between runs and ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

SUB_BUCKETS = 256
"""Equal-width buckets in each power of two."""

RELATIVE_ERROR = 0.002
"""Bound on |estimate - value| / value: half a bucket is 1/512 of a power of two's lower end."""

SHORTEST_S = 1e-9
"""Shorter durations, zero included, count as this: the clock's resolution."""

SPIKE_RATIO = 2.0
"""A spike takes more than this many times the median step after warm-up."""

SPIKES_KEPT = 64


@dataclass(frozen=True, slots=True)
class Sketch:
    """Counts of durations by log-linear bucket. Sketches of parts add up to that of the whole."""

    buckets: Mapping[int, int]

    @classmethod
    def of(cls, values_s: Iterable[float]) -> Sketch:
        """The sketch of some durations, in seconds."""
        counts: dict[int, int] = {}
        for value in values_s:
            index = bucket_of(value)
            counts[index] = counts.get(index, 0) + 1
        return cls(counts)

    def __add__(self, other: Sketch) -> Sketch:
        counts = dict(self.buckets)
        for index, count in other.buckets.items():
            counts[index] = counts.get(index, 0) + count
        return Sketch(counts)

    def quantile(self, share: float) -> float | None:
        """The duration at nearest rank `share` (0 to 1), within `RELATIVE_ERROR`; None if empty."""
        total = sum(self.buckets.values())
        rank = max(1, math.ceil(share * total))
        seen = 0
        for index in sorted(self.buckets):
            seen += self.buckets[index]
            if seen >= rank:
                return middle_of(index)
        return None

    def spelled(self) -> dict[str, int]:
        """The buckets as JSON wants them, in order."""
        return {str(index): self.buckets[index] for index in sorted(self.buckets)}


def bucket_of(value_s: float) -> int:
    """The bucket of a duration: `SUB_BUCKETS` for each power of two, 0 for one at 1 s."""
    mantissa, exponent = math.frexp(max(value_s, SHORTEST_S))
    return (exponent - 1) * SUB_BUCKETS + int((2 * mantissa - 1) * SUB_BUCKETS)


def middle_of(index: int) -> float:
    """The duration in the middle of a bucket."""
    exponent, sub = divmod(index, SUB_BUCKETS)
    return math.ldexp(1 + (sub + 0.5) / SUB_BUCKETS, exponent)


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
    found = [warmup + place for place, wall in enumerate(after) if wall > bar]
    longest = sorted(found, key=lambda place: -walls_s[place])[:SPIKES_KEPT]
    return tuple(sorted(longest))


def warmup_of(numbers: Sequence[int], first_compile_steps: frozenset[int]) -> int:
    """Leading steps in which some frame was compiled for the first time."""
    for place, number in enumerate(numbers):
        if number not in first_compile_steps:
            return place
    return len(numbers)
