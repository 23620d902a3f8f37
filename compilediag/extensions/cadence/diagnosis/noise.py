"""How steps vary when nothing happens, and which differences that leaves open.

Medians throughout: one slow step of a busy machine must neither make nor hide a cost.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

MIN_QUIET = 4
"""Quiet steps below which nothing can be compared."""

SIGMAS = 3.0
"""A difference within so many standard errors is not resolved."""

DRIFT = 0.05
"""Two processes that do the same work may differ by this share from first step to last."""

MIN_PROCESSES = 3
"""Processes without which a slower machine cannot be distinguished from a slower program."""

_MAD_TO_SIGMA = 1.4826
_MEDIAN_ERROR = 1.2533
"""Standard error of a median, in those of a mean, for normal noise."""

_MIN_SPREAD = 0.002
"""Of the median: no clock and no machine is steadier."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """Quiet steps, in seconds. A machine may be slower for a while: what a step takes is compared
    with the quiet steps near it, and so are they with each other."""

    numbers: tuple[int, ...]
    """Of the steps, in order."""
    values: tuple[float, ...]
    reach: int
    """How far before and after a step others are near."""
    median: float
    spread: float = 0.0
    """Standard deviation from what is usual nearby, estimated from the median deviation."""

    @property
    def count(self) -> int:
        return len(self.values)

    def excess(self, step: int, value: float) -> float:
        """By how much `value` is more than the median of the quiet steps near `step`, its own left
        out; more than that of all of them where few are near."""
        begin = bisect_left(self.numbers, step - self.reach)
        end = bisect_right(self.numbers, step + self.reach)
        near = [self.values[i] for i in range(begin, end) if self.numbers[i] != step]
        return value - (median(near) if len(near) >= MIN_QUIET else self.median)

    def median_excess(self, steps: Iterable[tuple[int, float]]) -> float:
        """The median excess of some steps, as number and seconds."""
        return median(self.excess(step, value) for step, value in steps)

    def bound(self, count: int) -> float:
        """The largest median excess of `count` steps that noise alone explains."""
        factor = _MEDIAN_ERROR if count > 1 else 1.0
        return SIGMAS * factor * self.spread * math.sqrt(1 / max(count, 1) + 1 / self.count)


def baseline_of(steps: Sequence[tuple[int, float]], reach: int) -> Baseline | None:
    """The baseline of quiet steps, given as number and seconds in order; None for fewer than
    `MIN_QUIET`."""
    if len(steps) < MIN_QUIET:
        return None
    numbers, values = zip(*steps, strict=True)
    level = Baseline(numbers, values, reach, median(values))
    deviation = median(abs(level.excess(number, value)) for number, value in steps)
    spread = max(_MAD_TO_SIGMA * deviation, _MIN_SPREAD * level.median, 1e-7)
    return replace(level, spread=spread)


def standing_cost(on: Sequence[Baseline], off: Sequence[Baseline]) -> float | None:
    """By how much quiet steps are longer in the processes `on` than in those `off`.

    The fastest of the first is compared with the slowest of the second, so that a machine that was
    busy for a while makes no cost. None within the noise, or where there are fewer than three.
    """
    if not on or not off or len(on) + len(off) < MIN_PROCESSES:
        return None
    low, high = min(on, key=lambda b: b.median), max(off, key=lambda b: b.median)
    own = math.hypot(low.spread / math.sqrt(low.count), high.spread / math.sqrt(high.count))
    bound = SIGMAS * _MEDIAN_ERROR * own + DRIFT * high.median
    difference = low.median - high.median
    return difference if difference > bound else None
