"""Lasting steps of a noisy series: found by `rank_scan`, and located.

A series is split at its clearest step, each part again, as long as chance explains no part; then
every step is judged once more between its neighbours, and those too small to matter are dropped.

To place a step, both levels are taken as the centre of their side. Moving the step over a value
costs what the value lies farther from its new level than from its old one, in squared deviations of
the noise, each at most `FARTHEST` squared, so that an outlier moves nothing. The step is where the
cost is least; the range is every index that costs at most `WITHIN` more, which for normal noise is
a 95 % confidence set: the index maximises a likelihood, twice the logarithm of its ratio is the
larger of two exponential numbers' doubles (Yao, Annals of Statistics 15, 1987, 1321-1328), and
inverting the ratio gives the set (Eo and Morley, Quantitative Economics 6, 2015, 463-497).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from statistics import fmean, median
from typing import NamedTuple

from compilediag.extensions.fleet.change_points.rank_scan import (
    chance_at,
    clearest_split,
    neighbour_correlation,
    ranks_of,
)

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


SHORTEST = 4
"""Values a new level must hold to be called lasting."""


class StepRule(NamedTuple):
    """What counts as a step."""

    chance: float = 0.01
    """Highest probability of any step where nothing changed."""
    min_change: float = 0.0
    """Smaller changes are left out: a share of the level before, or points of a share of yes."""
    shares: bool = False
    """The values are yes (1) and no (0); their level is a mean, and changes are in points."""


class LevelStep(NamedTuple):
    """A series changed its level for good, or until the next step."""

    at: int
    """Index of the first value at the new level."""
    earliest: int
    latest: int
    """Where it may have begun instead, with 95 % confidence."""
    before: float
    after: float
    """The levels: medians, or means of shares."""
    chance: float


def steps(values: Sequence[float], ties: Sequence[int], rule: StepRule) -> tuple[LevelStep, ...]:
    """Every lasting step of a series, in order.

    Args:
        values: the series, finite numbers.
        ties: a key for each value that has nothing to do with its position, for equal values.
        rule: what counts as a step.
    """
    splits = _split(values, ties, rule)
    correlation = neighbour_correlation(ranks_of(values, ties), splits)
    while splits:
        # Each between its neighbours.
        bounds = zip((0, *splits), splits, (*splits[1:], len(values)), strict=False)
        found = [_step(values, ties, rule, correlation, *each) for each in bounds]
        weakest = max(found, key=lambda step: _doubt(step, rule))
        if _doubt(weakest, rule) <= 1:
            return tuple(found)
        splits = [step.at for step in found if step is not weakest]
    return ()


def _split(values: Sequence[float], ties: Sequence[int], rule: StepRule) -> list[int]:
    """Indexes at which there may be steps, in order."""
    found: list[int] = []
    waiting = [(0, len(values))]
    while waiting:
        low, high = waiting.pop()
        split = clearest_split(values[low:high], ties[low:high], SHORTEST)
        if split is None or split.chance > rule.chance:
            continue
        begin = low + split.low
        part = values[begin : low + split.high]
        at = begin + place(part, split.at - split.low, SHORTEST, shares=rule.shares).at
        found.append(at)
        waiting += [(low, at), (at, high)]
    return sorted(found)


def _step(
    values: Sequence[float],
    ties: Sequence[int],
    rule: StepRule,
    correlation: float,
    low: int,
    at: int,
    high: int,
) -> LevelStep:
    part = values[low:high]
    placed = place(part, at - low, SHORTEST, shares=rule.shares, correlation=correlation)
    centre = fmean if rule.shares else median
    return LevelStep(
        at=low + placed.at,
        earliest=low + placed.earliest,
        latest=low + placed.latest,
        before=centre(part[: placed.at]),
        after=centre(part[placed.at :]),
        chance=chance_at(ranks_of(part, ties[low:high]), placed.at, SHORTEST, correlation),
    )


def _doubt(step: LevelStep, rule: StepRule) -> float:
    """Above 1 for a step that is too small or explained by chance; the largest is dropped first."""
    if step.chance > rule.chance:
        return 2 + step.chance
    size = abs(step.after - step.before)
    if not rule.shares:
        size = size / abs(step.before) if step.before else float(bool(size))
    return rule.min_change / size if size else 2.0


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
