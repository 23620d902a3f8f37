"""The sizes that frames accept, as runs are compared by them: only ranges and multiples, since a
single size is that of the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from compilediag.compare.keys import FrameKey, build_frame_key
from compilediag.receipt.schema.compiles import SizesAsked
from compilediag.receipt.schema.receipt import Receipt

Span: TypeAlias = tuple[int, int | None, int]
"""The first and the last size, None where there is no last one, and the distance between two."""

Sizes: TypeAlias = Mapping[str, tuple[Span, ...]]
"""By the dimensions that were varied together."""


def collect_accepted(receipt: Receipt) -> dict[FrameKey, Sizes]:
    """Collect what each frame accepts; nothing of those that were not asked, or asked twice."""
    found: dict[FrameKey, Sizes] = {}
    for asked in receipt.compile.accepted_inputs:
        key = build_frame_key(asked.frame)
        sizes = {" and ".join(its.dimensions): _list_ranges(its) for its in asked.sizes}
        found[key] = {} if key in found else sizes
    return found


def _list_ranges(sizes: SizesAsked) -> tuple[Span, ...]:
    return tuple(
        (first, None if last + step > sizes.asked_to else last, step)
        for first, last, step in sizes.spans
        if first < last
    )


def find_narrowed(before: Sizes, after: Sizes) -> Iterator[str]:
    """Find dimensions of which less is accepted than before, of those asked both times, described:
    "x.shape[0]: 2 or more → 2–15"."""
    for name, ranges in before.items():
        now = after.get(name)
        if now is not None and not all(any(_covers(by, its) for by in now) for its in ranges):
            yield f"{name}: {format_ranges(ranges)} → {format_ranges(now)}"


def _covers(span: Span, other: Span) -> bool:
    """True if all sizes of the other span are in this one."""
    (begin, end, distance), (first, last, step) = span, other
    ends_later = end is None or (last is not None and last <= end)
    return begin <= first and ends_later and not ((first - begin) % distance or step % distance)


def format_ranges(ranges: Sequence[Span]) -> str:
    """Format ranges of sizes: "2 or more", "8–64 in steps of 8"."""
    shown = [
        (f"{first} or more" if last is None else f"{first}–{last}")
        + (f" in steps of {step}" if step > 1 else "")
        for first, last, step in ranges[:3]
    ]
    return ", ".join(shown) or "a single size"
