"""Lasting steps of a noisy series: found by `rank_scan`, put in their places by `placing`.

A series is split at its clearest step, each part again, as long as chance explains no part; then
every step is judged once more between its neighbours, and those too small to matter are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from compilediag.fleet.change_points.placing import average, middle, place
from compilediag.fleet.change_points.rank_scan import (
    chance_at,
    clearest_split,
    correlation,
    ranks_of,
)

SHORTEST = 4
"""Values a new level must hold to be called lasting."""


class Rule(NamedTuple):
    """What counts as a step."""

    chance: float = 0.01
    """Highest probability of any step where nothing changed."""
    least: float = 0.0
    """Smaller changes are left out: a share of the level before, or points of a share of yes."""
    shares: bool = False
    """The values are yes (1) and no (0); their level is a mean, and changes are in points."""


class Step(NamedTuple):
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


def steps(values: Sequence[float], ties: Sequence[int], rule: Rule) -> tuple[Step, ...]:
    """Every lasting step of a series, in order.

    Args:
        values: the series, finite numbers.
        ties: a key for each value that has nothing to do with its place, for equal values.
        rule: what counts as a step.
    """
    places = _split(values, ties, rule)
    alike = correlation(ranks_of(values, ties), places)
    for _ in range(len(places) + 1):
        around = _around(places, len(values))
        found = [_step(values, ties, rule, alike, *place) for place in around]
        weakest = max(found, key=lambda step: _doubt(step, rule), default=None)
        if weakest is None or _doubt(weakest, rule) <= 1:
            return tuple(found)
        places = [step.at for step in found if step is not weakest]
    return ()


def _split(values: Sequence[float], ties: Sequence[int], rule: Rule) -> list[int]:
    """Places where there may be steps, in order."""
    found: list[int] = []
    waiting = [(0, len(values))]
    while waiting:
        low, high = waiting.pop()
        split = clearest_split(values[low:high], ties[low:high], SHORTEST)
        if split is None or split.chance > rule.chance:
            continue
        begin = low + split.low
        part = values[begin : low + split.high]
        guess = split.at - split.low
        at = begin + place(part, guess, SHORTEST, shares=rule.shares).at
        found.append(at)
        waiting += [(low, at), (at, high)]
    return sorted(found)


def _around(places: Sequence[int], number: int) -> list[tuple[int, int, int]]:
    """Each place between its neighbours."""
    return list(zip((0, *places), places, (*places[1:], number), strict=False))


def _step(
    values: Sequence[float],
    ties: Sequence[int],
    rule: Rule,
    alike: float,
    low: int,
    at: int,
    high: int,
) -> Step:
    part = values[low:high]
    placed = place(part, at - low, SHORTEST, shares=rule.shares, alike=alike)
    centre = average if rule.shares else middle
    return Step(
        at=low + placed.at,
        earliest=low + placed.earliest,
        latest=low + placed.latest,
        before=centre(part[: placed.at]),
        after=centre(part[placed.at :]),
        chance=chance_at(ranks_of(part, ties[low:high]), placed.at, SHORTEST, alike),
    )


def _doubt(step: Step, rule: Rule) -> float:
    """Above 1 for a step that is too small or explained by chance; the largest is dropped first."""
    if step.chance > rule.chance:
        return 2 + step.chance
    size = abs(step.after - step.before)
    if not rule.shares:
        size = size / abs(step.before) if step.before else float(bool(size))
    return rule.least / size if size else 2.0
