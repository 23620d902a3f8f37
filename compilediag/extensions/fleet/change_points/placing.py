"""Where a step began, and within which range of values that is known.

Both levels are taken as the centre of their side. Moving the step over a value costs what the
value lies farther from its new level than from its old one, in squared deviations of the noise,
each at most `FARTHEST` squared, so that an outlier moves nothing. The step is where the cost is
least; the range is every index that costs at most `WITHIN` more, which for normal noise is a 95 %
confidence set: the index maximises a likelihood, twice the logarithm of its ratio is the larger of
two exponential numbers' doubles (Yao, Annals of Statistics 15, 1987, 1321-1328), and inverting the
ratio gives the set (Eo and Morley, Quantitative Economics 6, 2015, 463-497).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from statistics import fmean, median
from typing import NamedTuple

WITHIN = 7.35
"""Twice the logarithm of the likelihood ratio: (1 - exp(-x / 2)) ** 2 is 0.95 for it."""

FARTHEST = 4.0
"""Standard deviations; what lies farther from a level costs no more."""

_ROUNDS = 5
_MAD_TO_DEVIATION = 1.4826
"""Of the normal distribution: its deviation is so many times its median absolute one."""


class Placed(NamedTuple):
    """The first value at the new level, and the range in which it lies."""

    at: int
    earliest: int
    latest: int


def place(
    values: Sequence[float],
    at: int,
    shortest: int,
    *,
    shares: bool = False,
    correlation: float = 0.0,
) -> Placed:
    """The index of the one step in `values` that is somewhere near `at`.

    Args:
        values: the series, with one step.
        at: a first guess.
        shortest: least values on either side.
        shares: the values are yes (1) and no (0), whose level is a mean.
        correlation: that of neighbours, which widens the range.
    """
    costs: list[float] = []
    for _ in range(_ROUNDS):
        costs = _costs(values, at, shares=shares)
        best = min(range(shortest, len(values) - shortest + 1), key=costs.__getitem__)
        if best == at:
            break
        at = best
    bound = costs[at] + WITHIN * (1 + correlation) / (1 - correlation)
    possible = [index for index in range(1, len(values)) if costs[index] <= bound]
    return Placed(at, min(possible[0], at), max(possible[-1], at))


def _costs(values: Sequence[float], at: int, *, shares: bool) -> list[float]:
    """What each index costs, with the levels of the sides of `at`."""
    centre = fmean if shares else median
    levels = centre(values[:at]), centre(values[at:])
    rest = [abs(value - levels[index >= at]) for index, value in enumerate(values)]
    if shares:
        noise = math.sqrt(fmean(value * value for value in rest))
    else:
        noise = _MAD_TO_DEVIATION * median(rest)
    noise = max(noise, 1e-9 * max(map(abs, levels)), 1e-300)
    before, after = (
        list(
            accumulate(
                (min(abs(value - level) / noise, FARTHEST) ** 2 for value in values), initial=0.0
            )
        )
        for level in levels
    )
    return [left + after[-1] - right for left, right in zip(before, after, strict=True)]
