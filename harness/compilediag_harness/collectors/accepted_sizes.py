"""Sizes that something accepts, found by asking for about two hundred of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

Span = tuple[int, int]
"""The first and the last size that is accepted."""

SMALL, AROUND = 128, 16
"""Every size up to the one is asked for, and so many below and above the one that was given."""

CHECKS = 16
"""Pairs of sizes between those asked for, at which what was concluded is tried."""


def find_spans(
    accepts: Callable[[int], bool], size: int, largest: int, numbers: Iterable[int]
) -> tuple[list[Span], int]:
    """Find the sizes that are accepted, and up to which one that is known: `largest`, or a small
    one where larger ones do not follow from those asked for, as with multiples of a number.

    Args:
        accepts: whether a size is accepted.
        size: one that was given.
        largest: the largest that is asked for.
        numbers: sizes at which acceptance may change.
    """
    answers: dict[int, bool] = {}

    def ask(at: int) -> bool:
        if at not in answers:
            answers[at] = accepts(at)
        return answers[at]

    small = min(SMALL, largest)
    points = {*range(small + 1), *range(size - AROUND, size + AROUND), largest}
    points |= {1 << power for power in range(largest.bit_length())}
    points |= {number + beside for number in numbers for beside in (-1, 0, 1)}
    spans = _join(sorted(at for at in points if 0 <= at <= largest), ask)
    draw = random.Random(size)  # noqa: S311 - the same ones in every run
    tried = [int(small * (largest / small) ** draw.random()) for _ in range(CHECKS)]
    for at in (*tried, *(at + 1 for at in tried if at < largest)):
        if ask(at) != any(first <= at <= last for first, last in spans):
            return _join(range(small + 1), ask), small
    return spans, largest


def _join(points: Iterable[int], ask: Callable[[int], bool]) -> list[Span]:
    """Join accepted points to spans, whose exact ends lie between two points."""
    spans: list[Span] = []
    before = 0
    for at in points:
        low, high = before, at
        while ask(before) != ask(at) and high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if ask(middle) == ask(before) else (low, middle)
        if ask(before) and spans:
            spans[-1] = spans[-1][0], at if ask(at) else low
        elif ask(at):
            spans.append((high, at))
        before = at
    return spans
