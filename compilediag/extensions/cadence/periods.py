"""Finds the period of recurring spikes in step times, and finds none in noise.

A step stands out when it is the longest of as many steps around it as the period has. By chance
every rhythm of that period has such steps, one in a period's length; a rhythm is named when it has
so many that chance gives them in less than one run in a hundred, all rhythms that were tried taken
together. Only the order of neighbours counts, so the test holds for noise of any shape, and on a
machine that is slower for a while.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import fmean, median

CHANCE = 0.01
"""Probability that noise is named, at most."""

MIN_HITS = 4
"""Steps of an unknown rhythm that stand out; three alone are evenly spaced too often."""

MIN_KNOWN_HITS = 3
"""The same for a rhythm whose period is known."""

MIN_SHARE_OF_HITS = 0.6
"""Fewer of its steps do not make a rhythm, however many they are."""

MIN_EXTRA = 0.05
"""A step that is longer by a smaller share than this is no spike."""

MAX_PERIODS = 4

MAX_STEPS = 3_000
"""Later steps are left out: the work grows with the square of their number."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Steps `first`, `first + period`, ... take longer."""

    period: int
    first: int
    count: int
    """How many of them stand out."""
    extra_s: float
    """By how much those are longer than the steps around them, in the median."""

    def list_steps(self, until: int) -> range:
        """List the steps of the rhythm before `until`."""
        return range(self.first, until, self.period)


def compute_longest_period(steps: int) -> int:
    """Compute the longest period, in steps, that can be found among so many steps."""
    return min(steps, MAX_STEPS) // MIN_HITS


def find_periods(values_s: Sequence[float]) -> list[Rhythm]:
    """Find the rhythms of the spikes, the clearest first; positions count from 0.

    Two rhythms may share steps: those of the first are left open for the second.
    """
    values_s = values_s[:MAX_STEPS]
    periods = range(2, compute_longest_period(len(values_s)) + 1)
    candidates = [(period, offset) for period in periods for offset in range(period)]
    rhythms: list[Rhythm] = []
    explained: set[int] = set()
    while len(rhythms) < MAX_PERIODS:
        best = _find_clearest(values_s, candidates, explained, MIN_HITS)
        if best is None:
            break
        best = _find_shortest(best, values_s, explained)
        rhythms.append(best)
        explained.update(best.list_steps(len(values_s)))
    return rhythms


def find_offset(values_s: Sequence[float], period: int) -> Rhythm | None:
    """Find the offset at which a rhythm of a known period begins; None when none stands out."""
    values_s = values_s[:MAX_STEPS]
    candidates = [(period, offset) for offset in range(min(period, len(values_s)))]
    return _find_clearest(values_s, candidates, set(), MIN_KNOWN_HITS) if period > 1 else None


def _find_clearest(
    values_s: Sequence[float],
    candidates: Sequence[tuple[int, int]],
    explained: set[int],
    min_hits: int,
) -> Rhythm | None:
    """Find the rhythm least likely by chance; None when chance may have made it."""
    best: tuple[float, Rhythm] | None = None
    series = _Series(values_s, explained)
    for period, offset in candidates:
        steps = [i for i in range(offset, len(values_s), period) if i not in explained]
        hits = [i for i in steps if series.is_longest(i, period)]
        if len(hits) < max(min_hits, MIN_SHARE_OF_HITS * len(steps)):
            continue
        lead_chance = fmean(1 / series.count_rivals(series.get_window(i, period)) for i in steps)
        # The binomial tail: at least so many steps lead, when each does with this probability.
        size = len(steps)
        terms = (
            math.comb(size, k) * lead_chance**k * (1 - lead_chance) ** (size - k)
            for k in range(len(hits), size + 1)
        )
        chance = sum(terms) * len(candidates)
        if chance <= CHANCE and (best is None or chance < best[0]):
            extra_s = median(series.compute_excess(i, period) for i in hits)
            if extra_s >= MIN_EXTRA * median(values_s):
                best = chance, Rhythm(period, offset, len(hits), extra_s)
    return best[1] if best is not None else None


class _Series:
    """The steps that are longest among those around them, and by how much; explained ones aside."""

    def __init__(self, values_s: Sequence[float], explained: Collection[int]) -> None:
        size = len(values_s)
        self._values = values_s
        self._explained = explained
        self._before = _find_nearest_as_long(values_s, explained)
        mirrored = _find_nearest_as_long(values_s[::-1], {size - 1 - i for i in explained})
        self._after = [size - 1 - index for index in reversed(mirrored)]
        self._open = [0, *accumulate(index not in explained for index in range(size))]

    def get_window(self, index: int, period: int) -> range:
        """Get the `period` steps around one; at an end of the series they are moved in."""
        begin = min(max(0, index - period // 2), max(0, len(self._values) - period))
        return range(begin, min(begin + period, len(self._values)))

    def count_rivals(self, window: range) -> int:
        """Count the steps of the window that are not explained."""
        return self._open[window.stop] - self._open[window.start]

    def is_longest(self, index: int, period: int) -> bool:
        """True if the step is the longest of its window, and not the only one in it."""
        window = self.get_window(index, period)
        leads = self._before[index] < window.start <= window.stop <= self._after[index]
        return leads and self.count_rivals(window) >= 2

    def compute_excess(self, step: int, period: int) -> float:
        """Compute by how much the step exceeds the others of its window, in the median."""
        rest = (i for i in self.get_window(step, period) if i != step and i not in self._explained)
        return self._values[step] - median(self._values[i] for i in rest)


def _find_nearest_as_long(values_s: Sequence[float], explained: Collection[int]) -> list[int]:
    """Find for each position the last one before it that is as long or longer; -1 for none."""
    nearest: list[int] = []
    waiting: list[int] = []
    for index, value in enumerate(values_s):
        while waiting and values_s[waiting[-1]] < value:
            waiting.pop()
        nearest.append(waiting[-1] if waiting else -1)
        if index not in explained:
            waiting.append(index)
    return nearest


def _find_shortest(rhythm: Rhythm, values_s: Sequence[float], explained: set[int]) -> Rhythm:
    """Find the rhythm, or one of a fraction of its period whose other steps are explained: two
    rhythms of 4 and 6 leave every second step of the one of 6 to itself."""
    own = set(rhythm.list_steps(len(values_s)))
    for period in range(2, rhythm.period):
        if rhythm.period % period:
            continue
        shorter = replace(rhythm, period=period, first=rhythm.first % period)
        added = set(shorter.list_steps(len(values_s))) - own
        both = [values_s[index] for index in added]
        single = [values_s[index] for index in explained - added]
        if not added <= explained or len(both) < 2 or len(single) < 2:
            continue
        if median(both) - median(single) >= rhythm.extra_s / 2:  # where they meet, both are paid
            return shorter
    return rhythm
