"""Is there a step anywhere in a series? Rank sums before and after every place, all in one test.

Every place splits a stretch in two; of each split the rank sum is compared with what chance gives
(Wilcoxon, Mann and Whitney). That is the scan of Pettitt (Applied Statistics 28, 1979, 126-135),
with each split measured by its own spread, so that a step near the end is seen as well. Stretches
are the whole series and, so that two steps cannot hide each other, overlapping halves, quarters and
so on of it (the seeded intervals of Kovacs, Buhlmann, Li and Munk, Biometrika 110, 2023, 249-256).

The probabilities are multiplied by the number of places (Bonferroni): half of the permitted error
goes to the whole series, the other half to the shorter stretches. Only ranks count: no distribution
of the noise is assumed, and an outlier is one rank. Ties are broken by keys that have nothing to do
with the order, which keeps every order equally likely where nothing changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

FEW = 12
"""Up to so many values on one side the tail is that of a sum of uniform numbers, not the normal."""

MOST_CORRELATION = 0.9


class Split(NamedTuple):
    """A place in a series."""

    at: int
    """Index of the first value behind it."""
    low: int
    high: int
    """The stretch in which it is the clearest."""
    chance: float
    """Bound on the probability of a split as clear as this, anywhere, where nothing changed."""


def ranks_of(values: Sequence[float], ties: Sequence[int]) -> list[int]:
    """The rank of each value, 1 for the smallest; equal values in the order of `ties`."""
    order = sorted(range(len(values)), key=lambda place: (values[place], ties[place]))
    ranks = [0] * len(values)
    for rank, place in enumerate(order, 1):
        ranks[place] = rank
    return ranks


def clearest_split(values: Sequence[float], ties: Sequence[int], shortest: int) -> Split | None:
    """The split that chance explains worst; None where no split leaves `shortest` values a side."""
    whole = len(values)
    if whole < 2 * shortest:
        return None
    best: Split | None = None
    for parts, times in _stretches(whole, shortest):
        for low, high in parts:
            at, tail = _in_stretch(ranks_of(values[low:high], ties[low:high]), shortest)
            chance = min(1.0, 2 * tail * times)
            if best is None or chance < best.chance:
                best = Split(low + at, low, high, chance)
    return best


def _stretches(whole: int, shortest: int) -> Iterator[tuple[list[tuple[int, int]], int]]:
    """Stretches of each length, and by what the probability of a split in them is multiplied."""
    yield [(0, whole)], 2 * _places(whole, shortest)
    lengths = [whole >> halved for halved in range(1, whole.bit_length())]
    lengths = [length for length in lengths if length >= 2 * shortest]
    for length in lengths:
        starts = [*range(0, whole - length, max(length // 2, 1)), whole - length]
        parts = [(start, start + length) for start in starts]
        yield parts, 2 * len(lengths) * len(parts) * _places(length, shortest)


def _places(number: int, shortest: int) -> int:
    return number - 2 * shortest + 1


def _in_stretch(ranks: Sequence[int], shortest: int) -> tuple[int, float]:
    """The split with the smallest tail: the one with the largest deviation, or one near an end."""
    number = len(ranks)
    sums = list(accumulate(ranks, initial=0))
    places = range(shortest, number - shortest + 1)
    middle = (number + 1) / 2
    ends = [place for place in places if min(place, number - place) <= FEW]
    clearest = max(
        places, key=lambda place: (sums[place] - place * middle) ** 2 / (place * (number - place))
    )
    tails = {
        place: _tail(abs(sums[place] - place * middle), place, number)
        for place in (*ends, clearest)
    }
    at = min(tails, key=tails.__getitem__)
    return at, tails[at]


def chance_at(ranks: Sequence[int], at: int, shortest: int, alike: float = 0.0) -> float:
    """How likely a split of the whole as clear as that at `at` is where nothing changed: corrected
    for having looked at all places, and for neighbours with a correlation of `alike`."""
    number = len(ranks)
    excess = sum(ranks[:at]) - at * (number + 1) / 2
    tail = _tail(abs(excess), at, number)
    if alike > 0:
        # n values of that correlation tell as much as n (1 - r) / (1 + r) that are independent.
        tail = _normal_tail(_deviations(tail) * math.sqrt((1 - alike) / (1 + alike)))
    return min(1.0, 4 * tail * _places(number, shortest))


def fewest(chance: float, shortest: int) -> int:
    """How many values there must be for the clearest step there is, in the middle of them, to be
    one that chance explains with a probability of `chance` at most."""
    number = 2 * shortest
    while True:
        half = number // 2
        excess = half * (number - half) / 2
        if 4 * _tail(excess, half, number) * _places(number, shortest) <= chance:
            return number
        number += 1


def correlation(values: Sequence[float], places: Sequence[int]) -> float:
    """How much neighbours resemble each other beside the steps, from 0 to `MOST_CORRELATION`.

    The correlation of neighbours around the mean of their own stretch, less the standard error that
    independent values would have: what chance alone shows costs nothing.
    """
    number = len(values)
    rest: list[float] = []
    for begin, end in pairwise((0, *places, number)):
        mean = sum(values[begin:end]) / (end - begin)
        rest += [value - mean for value in values[begin:end]]
    squares = sum(value * value for value in rest)
    if squares == 0:
        return 0.0
    found = sum(left * right for left, right in pairwise(rest)) / squares
    return min(max(found - 1 / math.sqrt(number), 0.0), MOST_CORRELATION)


def _tail(excess: float, at: int, number: int) -> float:
    """A bound on the probability that the ranks of `at` of `number` values add up to so much more
    than on average: for a few values that of as many uniform numbers, else that of the normal."""
    excess = max(excess - 0.5, 0.0)
    few = min(at, number - at)
    spread = math.sqrt(few * (number - few) * (number + 1) / 12)
    tail = _normal_tail(excess / spread)
    return tail if few > FEW else min(tail, _uniform_tail(few, few / 2 - excess / number))


def _normal_tail(deviations: float) -> float:
    return math.erfc(deviations / math.sqrt(2)) / 2


def _uniform_tail(number: int, total: float) -> float:
    """The probability that `number` uniform numbers add up to `total` at most (Irwin and Hall)."""
    terms = (
        (-1) ** k * math.comb(number, k) * (total - k) ** number
        for k in range(math.floor(total) + 1)
    )
    return min(max(sum(terms) / math.factorial(number), 0.0), 1.0)


def _deviations(tail: float) -> float:
    """How many standard deviations off the normal has this tail; 0 for a half and more."""
    low, high = 0.0, 38.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _normal_tail(middle) > tail else (low, middle)
    return low
