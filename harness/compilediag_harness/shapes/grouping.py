"""Neighbours grouped so that what the groups cost is least: a shortest path, exactly and fast.

A group of neighbours costs a straight line in the price of its largest member: the lower envelope
of those lines gives each step of the path in constant time, and k groups of n members in O(k n).
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def largest_of_groups(
    prices: Sequence[float], weights: Sequence[float], k: int, per_group: float
) -> list[int]:
    """Positions of the largest member of each group, when neighbours are grouped so that the sum of
    (weight of the group) x (price of its largest member) + per_group is least.

    Args:
        prices: never falling.
        weights: parallel to them.
        k: most groups.
        per_group: added for every group.
    """
    before = [0.0]
    for weight in weights:
        before.append(before[-1] + weight)
    least: list[float] = [0.0] + [math.inf] * len(prices)
    best, best_groups = math.inf, 0
    choices: list[list[int]] = []
    for groups in range(1, min(k, len(prices)) + 1):
        least, chosen = _one_more(least, prices, before)
        choices.append(chosen)
        total = least[-1] + per_group * groups
        if total < best:
            best, best_groups = total, groups
    return _traced(choices[:best_groups])


def _one_more(
    least: Sequence[float], prices: Sequence[float], before: Sequence[float]
) -> tuple[list[float], list[int]]:
    """The least cost of the first 1, 2... members with one group more, and where that group begins.

    A group from i to j costs prices[j] * (before[j + 1] - before[i]): over i these are lines in
    prices[j]. Later lines fall more steeply and prices never fall, so a line that was left behind
    is never best again.
    """
    result, chosen = [math.inf], [0]
    lines: list[int] = []
    best = 0
    for end in range(1, len(least)):
        if least[end - 1] < math.inf:
            _add_line(lines, end - 1, least, before)
        best = min(best, max(len(lines) - 1, 0))
        price = prices[end - 1]
        while best + 1 < len(lines) and _value(lines[best + 1], price, least, before) <= _value(
            lines[best], price, least, before
        ):
            best += 1
        if lines:
            start = lines[best]
            result.append(least[start] + price * (before[end] - before[start]))
            chosen.append(start)
        else:
            result.append(math.inf)
            chosen.append(0)
    return result, chosen


def _value(line: int, price: float, least: Sequence[float], before: Sequence[float]) -> float:
    return least[line] - price * before[line]


def _add_line(lines: list[int], new: int, least: Sequence[float], before: Sequence[float]) -> None:
    """Adds the steepest line and drops those that are nowhere the lowest any more."""
    while lines and before[lines[-1]] == before[new] and least[lines[-1]] >= least[new]:
        lines.pop()
    if lines and before[lines[-1]] == before[new]:
        return
    while len(lines) >= 2:
        first, middle = lines[-2], lines[-1]
        # Where `new` passes below `first` against where `middle` does, without dividing.
        passes_new = (least[new] - least[first]) * (before[middle] - before[first])
        passes_middle = (least[middle] - least[first]) * (before[new] - before[first])
        if passes_new > passes_middle:
            break
        lines.pop()
    lines.append(new)


def _traced(choices: Sequence[Sequence[int]]) -> list[int]:
    """From the last member back: the largest member of each group."""
    tops: list[int] = []
    end = len(choices[0]) - 1
    for chosen in reversed(choices):
        tops.append(end - 1)
        end = chosen[end]
    return tops[::-1]
