"""Sizes that something accepts, found by asking for a few hundred of them: ranges, single ones, and
what repeats at a distance."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

Span = tuple[int, int, int]
"""The first and the last size that is accepted, and the distance between two."""

LARGEST = 1 << 16
"""No larger size is asked for."""

SMALL, AROUND = 64, 16
"""Every size up to the one is asked for, and so many below and above the one that was given."""

MAX_PERIOD = 32
CHECKS = 24
"""Sizes between those asked for, at which what was concluded is tried."""


def find_spans(
    accepts: Callable[[int], bool],
    size: int,
    largest: int,
    periods: Iterable[int] = (),
    hints: Iterable[int] = (),
) -> tuple[list[Span], int]:
    """Find the sizes that are accepted, and up to which one that is known: `largest`, or less where
    a conclusion did not hold.

    Args:
        accepts: whether a size is accepted.
        size: one that was given.
        periods: distances at which acceptance may repeat.
        hints: sizes at which it may change.
    """
    answers: dict[int, bool] = {}

    def ask(at: int) -> bool:
        if at not in answers:
            answers[at] = accepts(at)
        return answers[at]

    known = {*range(SMALL + 1), *range(size - AROUND, size + AROUND + 1)}
    near = known | {hint + beside for hint in hints for beside in (-1, 0, 1)}
    draw = random.Random(size)
    tried = [int(SMALL * (largest / SMALL) ** draw.random()) for _ in range(CHECKS)]
    found: list[list[Span]] = []
    for period in (1, *sorted({its for its in periods if 1 < its <= MAX_PERIOD})):
        spans = _search(ask, near, largest, period)
        if all(ask(at) == is_inside(at, spans) for at in tried if at <= largest):
            found.append(spans)
    if found:
        return min(found, key=len), largest
    whole = min(largest, max(SMALL, size + AROUND if size <= SMALL + AROUND + 1 else SMALL))
    return [(at, at, 1) for at in range(whole + 1) if ask(at)], whole


def is_inside(size: int, spans: Iterable[Span]) -> bool:
    """True if a size is in one of the spans."""
    return any(first <= size <= last and not (size - first) % step for first, last, step in spans)


def _search(
    ask: Callable[[int], bool], near: Iterable[int], largest: int, period: int
) -> list[Span]:
    """Search the sizes of each remainder by the period from the near ones on."""
    far = {power * count for power in map((1).__lshift__, range(6, 17)) for count in (2, 3)}
    spans: list[Span] = []
    for rest in range(period):
        points = {at for at in near if at % period == rest}
        points |= {at // period * period + rest + beside for at in far for beside in (0, period)}
        points.add(largest - (largest - rest) % period)
        spans += _join(sorted(at for at in points if 0 <= at <= largest), ask, period)
    long = [span for span in spans if span[0] < span[1]]
    begins, ends = [span[0] for span in long], [span[1] for span in long]
    if len(long) == period > 1 and max(begins) - min(begins) == max(ends) - min(ends) == period - 1:
        spans = [(min(begins), max(ends), 1), *(its for its in spans if its not in long)]
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
        if ask(before) and low > before:
            spans[-1] = spans[-1][0], low, step
        if ask(at) and spans and ask(before):
            spans[-1] = spans[-1][0], at, step
        elif ask(at):
            spans.append((high, at, step))
        before = at
    return [(first, last, step if first < last else 1) for first, last, step in spans]


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Merge the spans of several graphs: those that touch, and those inside of another."""
    ranges: list[Span] = []
    for first, last, step in sorted(spans, key=lambda span: (span[2], span)):
        if step == 1 and ranges and first <= ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], max(last, ranges[-1][1]), 1
        else:
            ranges.append((first, last, step))
    return sorted(its for its in set(ranges) if not any(_is_part(its, by) for by in ranges))


def _is_part(span: Span, other: Span) -> bool:
    """True if all sizes of a span are in another one."""
    first, last, step = span
    ends_inside = is_inside(first, [other]) and is_inside(last, [other])
    return span != other and ends_inside and (first == last or not step % other[2])
