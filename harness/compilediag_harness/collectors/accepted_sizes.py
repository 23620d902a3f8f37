"""Sizes that something accepts, found by asking for a few hundred of them: ranges, single ones, and
what repeats at a distance."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

Span = tuple[int, int, int]
"""The first and the last size that is accepted, and the distance between two."""

SMALL, AROUND = 64, 16
"""Every size up to the one is asked for, and so many below and above the one that was given."""

MAX_PERIOD = 32
CHECKS = 24
"""Sizes between those asked for, at which what was concluded is tried."""


def find_spans(
    accepts: Callable[[int], bool], size: int, largest: int, numbers: Iterable[int]
) -> tuple[list[Span], int]:
    """Find the sizes that are accepted, and up to which one that is known: `largest`, or less where
    a conclusion did not hold.

    Args:
        accepts: whether a size is accepted.
        size: one that was given.
        largest: the largest that is asked for.
        numbers: sizes at which acceptance may change, and distances at which it may repeat.
    """
    answers: dict[int, bool] = {}

    def ask(at: int) -> bool:
        if at not in answers:
            answers[at] = accepts(at)
        return answers[at]

    near = {*range(SMALL + 1), *range(size - AROUND, size + AROUND + 1)}
    near |= {number + beside for number in numbers for beside in (-1, 0, 1)}
    draw = random.Random(size)  # noqa: S311 - the same ones in every run
    tried = [int(SMALL * max(largest / SMALL, 1) ** draw.random()) for _ in range(CHECKS)]
    found: list[list[Span]] = []
    for period in sorted({1, *(number for number in numbers if number <= MAX_PERIOD)}):
        spans = _search(ask, near, largest, period)
        if all(ask(at) == is_inside(at, spans) for at in tried if at <= largest):
            found.append(spans)
    if found:
        return min(found, key=len), largest
    return [(at, at, 1) for at in range(min(SMALL, largest) + 1) if ask(at)], SMALL


def is_inside(size: int, spans: Iterable[Span]) -> bool:
    """True if a size is in one of the spans."""
    return any(first <= size <= last and not (size - first) % step for first, last, step in spans)


def _search(
    ask: Callable[[int], bool], near: Iterable[int], largest: int, period: int
) -> list[Span]:
    """Search the sizes of each remainder by the period, from the near ones on."""
    far = [1 << power for power in range(SMALL.bit_length() - 1, largest.bit_length())]
    spans: list[Span] = []
    for rest in range(period):
        points = {at for at in near if at % period == rest}
        points |= {at // period * period + rest + beside for at in far for beside in (0, period)}
        points.add(largest - (largest - rest) % period)
        spans += _join(sorted(at for at in points if 0 <= at <= largest), ask, period)
    return spans


def _join(points: list[int], ask: Callable[[int], bool], step: int) -> list[Span]:
    """Join accepted points to spans, whose exact ends lie between two points."""
    spans: list[Span] = []
    before = points[0]
    for at in points:
        low, high = before, at
        while ask(before) != ask(at) and high - low > step:
            middle = low + (high - low) // step // 2 * step
            low, high = (middle, high) if ask(middle) == ask(before) else (low, middle)
        if ask(before) and spans:
            spans[-1] = spans[-1][0], at if ask(at) else low, step
        elif ask(at):
            spans.append((high, at, step))
        before = at
    return [(first, last, step if first < last else 1) for first, last, step in spans]
