"""Lasting levels of exact counts, such as recompiles.

These have no noise: a count that stays at another value has changed, however small the change.

A level is a value that several receipts in a row have. How many: at least `SHORTEST`; where single
receipts stray from the levels, so many that strays are the same value in a row, anywhere in the
series, with a probability of `CHANCE` at most (the number of receipts times the share of strays to
the power of that number). A series that strays often is no series of levels: see `noisy_steps`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

SHORTEST = 3
CHANCE = 0.01

MAX_STRAYS = 0.1
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


def find_levels(counts: Sequence[int]) -> Levels | None:
    """Find the levels of a series; None where it has none, or strays from them too often."""
    length = SHORTEST
    for _ in range(len(counts)):
        result = _build_levels(counts, length)
        if not result.levels or result.strays > max(MAX_STRAYS * len(counts), 1):
            return None
        # Strays in a row that are no accident: size * (strays / size) ** runs <= CHANCE.
        longer, size = SHORTEST, len(counts)
        if result.strays:
            runs = math.log(size / CHANCE) / math.log(size / result.strays)
            longer = max(SHORTEST, math.ceil(runs))
        if longer <= length:
            return result
        length = longer
    return None


def _build_levels(counts: Sequence[int], length: int) -> Levels:
    runs: list[Level] = []
    stop = 0
    for value, members in groupby(counts):
        start, stop = stop, stop + sum(1 for _ in members)
        if stop - start < length:
            continue
        if runs and runs[-1].value == value:
            runs[-1] = runs[-1]._replace(stop=stop)
        else:
            runs.append(Level(start, stop, value))
    if not runs:
        return Levels((), len(counts), length, None)
    end = _find_end(counts, runs[-1], len(counts))
    begins = [*(run.start for run in runs[1:]), end]
    levels = tuple(
        run._replace(stop=_find_end(counts, run, begin))
        for run, begin in zip(runs, begins, strict=True)
    )
    at_level = sum(counts[level.start : level.stop].count(level.value) for level in levels)
    newest, strays = len(counts) - end, end - at_level
    if (strays / end) ** newest > CHANCE:  # no more than strays do here
        return Levels(levels, strays + newest, length, None)
    return Levels(levels, strays, length, end if newest else None)


def _find_end(counts: Sequence[int], run: Level, end: int) -> int:
    """Find the index behind the last receipt before `end` that is at the level of the run."""
    while counts[end - 1] != run.value:
        end -= 1
    return end
