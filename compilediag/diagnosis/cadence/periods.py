"""Finds the period of recurring spikes in step times, and finds none in noise.

A step stands out when it is the longest of as many steps around it as the period has. By chance
every rhythm of that period has such steps, one in a period's length; a rhythm is named when it has
so many that chance gives them in less than one run in a hundred, all rhythms that were tried taken
together. Only the order of neighbours counts, so the test holds for noise of any shape, and on a
machine that is slower for a while.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean, median

CHANCE = 0.01
"""Probability that noise is named, at most."""

FEWEST_HITS = 4
"""Steps of an unknown rhythm that stand out; three alone are evenly spaced too often."""

FEWEST_KNOWN_HITS = 3
"""The same for a rhythm whose period is known."""

LEAST_SHARE_OF_HITS = 0.6
"""Fewer of its steps do not make a rhythm, however many they are."""

LEAST_EXTRA = 0.05
"""A step that is longer by a smaller share than this is no spike."""

MOST_PERIODS = 4

MOST_STEPS = 3_000
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

    def steps(self, until: int) -> tuple[int, ...]:
        """The steps of the rhythm before `until`."""
        return tuple(range(self.first, until, self.period))


def longest_period(steps: int) -> int:
    """The longest period that can be found among so many steps."""
    return min(steps, MOST_STEPS) // FEWEST_HITS


def find_periods(values_s: Sequence[float]) -> list[Rhythm]:
    """The rhythms of the spikes, the plainest first; positions count from 0.

    Two rhythms may share steps: those of the first are left open for the second.
    """
    values_s = values_s[:MOST_STEPS]
    periods = range(2, longest_period(len(values_s)) + 1)
    found: list[Rhythm] = []
    explained: set[int] = set()
    while len(found) < MOST_PERIODS:
        tried = [(period, offset) for period in periods for offset in range(period)]
        best = _plainest(values_s, tried, explained, FEWEST_HITS)
        if best is None:
            return found
        best = _shortest(best, values_s, explained)
        found.append(best)
        explained |= set(best.steps(len(values_s)))
    return found


def find_offset(values_s: Sequence[float], period: int) -> Rhythm | None:
    """Where a rhythm of a known period begins; None when no place of it stands out."""
    values_s = values_s[:MOST_STEPS]
    tried = [(period, offset) for offset in range(min(period, len(values_s)))]
    return _plainest(values_s, tried, set(), FEWEST_KNOWN_HITS) if period > 1 else None


def _plainest(
    values_s: Sequence[float],
    tried: Sequence[tuple[int, int]],
    explained: set[int],
    fewest: int,
) -> Rhythm | None:
    """The rhythm least likely by chance; None when chance may have made it."""
    best: tuple[float, Rhythm] | None = None
    leading = _Leading(values_s, explained)
    for period, offset in tried:
        places = [p for p in range(offset, len(values_s), period) if p not in explained]
        hits = [place for place in places if leading.leads(place, period)]
        if len(hits) < max(fewest, LEAST_SHARE_OF_HITS * len(places)):
            continue
        each = fmean(1 / leading.rivals(place, period) for place in places)
        chance = _chance(len(places), len(hits), each) * len(tried)
        if chance <= CHANCE and (best is None or chance < best[0]):
            rhythm = leading.rhythm(period, offset, hits)
            if rhythm.extra_s >= LEAST_EXTRA * median(values_s):
                best = chance, rhythm
    return best[1] if best is not None else None


class _Leading:
    """Which steps are the longest of those around them, and by how much."""

    def __init__(self, values_s: Sequence[float], explained: set[int]) -> None:
        self._values = values_s
        self._explained = explained
        before = _nearest_as_long(values_s, explained)
        after = _nearest_as_long(values_s[::-1], {len(values_s) - 1 - p for p in explained})
        self._before = before
        self._after = [len(values_s) - 1 - place for place in reversed(after)]
        open_before = accumulate(place not in explained for place in range(len(values_s)))
        self._open = [0, *open_before]

    def leads(self, place: int, period: int) -> bool:
        """Whether the step is the longest of the `period` steps around it."""
        window = self._window(place, period)
        alone = self.rivals(place, period) < 2
        return not alone and self._before[place] < window.start <= window.stop <= self._after[place]

    def rivals(self, place: int, period: int) -> int:
        """How many steps of the window are not explained, its own included."""
        window = self._window(place, period)
        return self._open[window.stop] - self._open[window.start]

    def rhythm(self, period: int, offset: int, hits: Sequence[int]) -> Rhythm:
        extra = [self._values[place] - median(self._around(place, period)) for place in hits]
        return Rhythm(period, offset, len(hits), median(extra))

    def _around(self, place: int, period: int) -> list[float]:
        window = self._window(place, period)
        others = [p for p in window if p != place and p not in self._explained]
        return [self._values[p] for p in others]

    def _window(self, place: int, period: int) -> range:
        """At an end of the series it is moved in."""
        begin = min(max(0, place - period // 2), max(0, len(self._values) - period))
        return range(begin, min(begin + period, len(self._values)))


def _nearest_as_long(values_s: Sequence[float], explained: set[int]) -> list[int]:
    """For each position the last one before it that is as long or longer; -1 when there is none."""
    found: list[int] = []
    waiting: list[int] = []
    for place, value in enumerate(values_s):
        while waiting and values_s[waiting[-1]] < value:
            waiting.pop()
        found.append(waiting[-1] if waiting else -1)
        if place not in explained:
            waiting.append(place)
    return found


def _chance(places: int, hits: int, probability: float) -> float:
    """Probability that at least so many steps lead, when each does with `probability`."""
    miss = 1 - probability
    return sum(
        math.comb(places, k) * probability**k * miss ** (places - k)
        for k in range(hits, places + 1)
    )


def _shortest(rhythm: Rhythm, values_s: Sequence[float], explained: set[int]) -> Rhythm:
    """The rhythm, or one of a fraction of its period whose other steps are all explained: two
    rhythms of 4 and 6 leave every second step of the one of 6 to itself."""
    for period in range(2, rhythm.period):
        if rhythm.period % period:
            continue
        shorter = Rhythm(period, rhythm.first % period, rhythm.count, rhythm.extra_s)
        added = set(shorter.steps(len(values_s))) - set(rhythm.steps(len(values_s)))
        if added <= explained and _adds_up(added, rhythm.extra_s, values_s, explained):
            return shorter
    return rhythm


def _adds_up(
    shared: Iterable[int], extra_s: float, values_s: Sequence[float], explained: set[int]
) -> bool:
    """Where two rhythms meet, both are paid."""
    both = [values_s[place] for place in shared]
    single = [values_s[place] for place in explained - set(shared)]
    if len(both) < 2 or len(single) < 2:
        return False
    return median(both) - median(single) >= extra_s / 2
