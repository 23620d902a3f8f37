"""Lasting levels of exact counts: torch counts recompiles without noise, so that a count that stays
at another value has changed, however small the change.

A level is a value that several receipts in a row have. How many: at least `SHORTEST`; where single
receipts stray from the levels, so many that strays are the same value in a row, anywhere in the
series, with a probability of `CHANCE` at most (the number of receipts times the share of strays to
the power of that number). A series that strays often is no series of levels: see `noisy`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

SHORTEST = 3
CHANCE = 0.01

MOST_STRAYS = 0.1
"""Share of receipts beside their level, above which there are no levels; one is always allowed."""


class Level(NamedTuple):
    """A count that lasted: from `start` to before `stop`, some single receipts left out."""

    start: int
    stop: int
    value: int


class Levels(NamedTuple):
    """A series of counts as levels."""

    levels: tuple[Level, ...]
    strays: int
    """Receipts beside their level, or before the first one."""
    length: int
    """How many receipts in a row make a level here."""
    began: int | None
    """Index from which on the newest receipts left the last level, too few to call it lasting; None
    where they are at it, or where that many strays are nothing new."""


def levels_of(counts: Sequence[int]) -> Levels | None:
    """The levels of a series; None where it has none, or strays from them too often."""
    length = SHORTEST
    for _ in range(len(counts)):
        found = _levels(counts, length)
        if not found.levels or found.strays > max(MOST_STRAYS * len(counts), 1):
            return None
        longer = _length(found.strays, len(counts))
        if longer <= length:
            return found
        length = longer
    return None


def _length(strays: int, number: int) -> int:
    """How many strays in a row, of one value, are no accident."""
    if not strays:
        return SHORTEST
    return max(SHORTEST, math.ceil(math.log(number / CHANCE) / math.log(number / strays)))


def _levels(counts: Sequence[int], length: int) -> Levels:
    merged: list[Level] = []
    for level in _long_runs(counts, length):
        if merged and merged[-1].value == level.value:
            merged[-1] = merged[-1]._replace(stop=level.stop)
        else:
            merged.append(level)
    if not merged:
        return Levels((), len(counts), length, None)
    end = _left(counts, merged[-1])
    begins = [*(level.start for level in merged[1:]), end]
    levels = [_whole(counts, *pair) for pair in zip(merged, begins, strict=True)]
    kept = sum(counts[level.start : level.stop].count(level.value) for level in levels)
    newest, strays = len(counts) - end, end - kept
    if (strays / end) ** newest > CHANCE:  # no more than strays do here
        return Levels(tuple(levels), strays + newest, length, None)
    return Levels(tuple(levels), strays, length, end if newest else None)


def _whole(counts: Sequence[int], level: Level, end: int) -> Level:
    """The level up to the last receipt before `end` that is at it."""
    while counts[end - 1] != level.value:
        end -= 1
    return level._replace(stop=end)


def _long_runs(counts: Sequence[int], length: int) -> list[Level]:
    runs: list[Level] = []
    start = 0
    for value, members in groupby(counts):
        stop = start + sum(1 for _ in members)
        if stop - start >= length:
            runs.append(Level(start, stop, value))
        start = stop
    return runs


def _left(counts: Sequence[int], level: Level) -> int:
    """Where the receipts behind the last level begin of which none is at it any more; the number of
    receipts where the newest one is at it."""
    place = len(counts)
    while place > level.stop and counts[place - 1] != level.value:
        place -= 1
    return place
