"""Numbers that come one by one, summed up in bounded memory."""

from __future__ import annotations

import math
import statistics
from array import array
from random import Random

from compilediag_harness.wire import TrackedMetric

CHUNK = 4096
"""Numbers that wait until they are added up at once: nothing is computed when one is added."""

MAX_SAMPLE = 16_384
"""Numbers kept for the median, 128 KiB. With more it is that of a fair sample of so many, whose
rank is within 1.2 percent of the middle in 997 of 1,000 series."""


class Series:
    """Numbers in the order in which they came."""

    __slots__ = (
        *("_count", "_last", "_max", "_min", "_next", "_not_finite", "_random", "_sample"),
        *("_total", "_waiting", "_weight"),
    )

    def __init__(self) -> None:
        self._waiting = array("d")
        self._sample = array("d")
        self._count = 0
        self._not_finite = 0
        self._total = 0.0
        self._min = math.inf
        self._max = -math.inf
        self._last: float | None = None
        self._random: Random | None = None
        self._weight = 1.0
        self._next = 0
        """Index in the series of the next number that goes into a full sample."""

    def add(self, value: float) -> None:
        """Takes one number."""
        waiting = self._waiting
        waiting.append(value)
        if len(waiting) >= CHUNK:
            self._add_up()

    def summary(self, name: str, *, median: bool = True) -> TrackedMetric:
        """The series so far; sorting for the median is most of the cost."""
        self._add_up()
        if self._count == 0:
            return TrackedMetric(name, 0, not_finite=self._not_finite)
        mean = self._total / self._count
        return TrackedMetric(
            name,
            self._count,
            # The mean is null where the sum is beyond the largest float.
            mean=min(max(mean, self._min), self._max) if math.isfinite(mean) else None,
            median=self._median() if median else None,
            min=self._min,
            max=self._max,
            last=self._last,
            median_of=len(self._sample),
            not_finite=self._not_finite,
        )

    def _median(self) -> float:
        median = statistics.median(self._sample)
        if math.isfinite(median):
            return median
        return 2.0 * statistics.median([value / 2.0 for value in self._sample])

    def _add_up(self) -> None:
        waiting = self._waiting
        if not waiting:
            return
        self._waiting = array("d")
        finite = waiting
        if not math.isfinite(sum(waiting)):
            finite = array("d", filter(math.isfinite, waiting))
            self._not_finite += len(waiting) - len(finite)
        if not finite:
            return
        try:
            self._total = math.fsum((self._total, *finite))
        except OverflowError:
            self._total = math.inf
        low, high = min(finite), max(finite)
        self._min, self._max = min(self._min, low), max(self._max, high)
        self._last = finite[-1]
        self._keep(finite)
        self._count += len(finite)

    def _keep(self, values: array[float]) -> None:
        """Every number has the same chance to stay. The index of the next one is drawn, not for
        each number whether it stays: Kim-Hung Li's algorithm L (1994)."""
        sample = self._sample
        room = MAX_SAMPLE - len(sample)
        if room > 0:
            sample.extend(values[:room])
            if len(sample) < MAX_SAMPLE:
                return
        if self._random is None:
            self._random = Random(0)  # noqa: S311 - a sample, not a secret
            self._next = MAX_SAMPLE - 1
            self._draw(self._random)
        first, end = self._count, self._count + len(values)
        while self._next < end:
            sample[self._random.randrange(MAX_SAMPLE)] = values[self._next - first]
            self._draw(self._random)

    def _draw(self, random: Random) -> None:
        # 1 - random() is never 0, which has no logarithm.
        self._weight *= math.exp(math.log(1.0 - random.random()) / MAX_SAMPLE)
        skipped = math.log(1.0 - random.random()) / math.log1p(-self._weight)
        self._next += math.floor(skipped) + 1
