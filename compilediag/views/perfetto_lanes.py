"""Stretches of time put side by side, so that those of one lane lie apart or inside each other.

A viewer draws the slices of one thread as a stack: two that overlap without one holding the other
would be drawn wrongly or dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

CLOCK_NOISE_NS = 2
"""Two times read as one and stored as floating point differ by no more after rounding."""


class Slice(NamedTuple):
    """A stretch of one process's time, in nanoseconds since the process attached."""

    name: str
    start_ns: int
    end_ns: int
    category: str
    args: Mapping[str, Any]


def slice_of(
    name: str, start_s: float, wall_s: float, category: str, args: Mapping[str, Any] | None = None
) -> Slice:
    """A slice from seconds; a negative duration, which only a forged record has, becomes zero."""
    start_ns = round(start_s * 1e9)
    return Slice(
        name, start_ns, max(round((start_s + wall_s) * 1e9), start_ns), category, args or {}
    )


def lanes_of(slices: Iterable[Slice]) -> list[list[Slice]]:
    """The slices in as few lanes as the order of their starts allows, each in order of time."""
    lanes: list[list[Slice]] = []
    open_ends: list[list[int]] = []
    for item in sorted(slices, key=lambda one: (one.start_ns, -one.end_ns)):
        for lane, ends in zip(lanes, open_ends, strict=True):
            fitted = _fitted(item, ends)
            if fitted is not None:
                lane.append(fitted)
                ends.append(fitted.end_ns)
                break
        else:
            lanes.append([item])
            open_ends.append([item.end_ns])
    return lanes


def _fitted(item: Slice, ends: list[int]) -> Slice | None:
    """The slice as it fits behind or into what is open; None where it would cut through it.

    `ends` are the ends of the slices that hold each other, the innermost last; those that are over
    leave it.
    """
    while ends and ends[-1] <= item.start_ns:
        ends.pop()
    if not ends or item.end_ns <= ends[-1]:
        return item
    if ends[-1] - item.start_ns <= CLOCK_NOISE_NS:
        shifted = item._replace(start_ns=ends[-1])
        ends.pop()
        return _fitted(shifted, ends)
    if item.end_ns - ends[-1] <= CLOCK_NOISE_NS:
        return item._replace(end_ns=ends[-1])
    return None
