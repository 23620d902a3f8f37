"""The sizes that frames accept, as runs are compared by them: ranges alone, since a single size is
that of the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from compilediag.compare.keys import FrameKey, build_frame_key
from compilediag.receipt.schema.receipt import Receipt

Range: TypeAlias = tuple[int, int | None]
"""The first and the last size; None where there is no last one."""

Sizes: TypeAlias = Mapping[str, tuple[Range, ...]]
"""By the dimensions that were varied together."""


def collect_accepted(receipt: Receipt) -> dict[FrameKey, Sizes]:
    """Collect what each frame accepts; nothing of those that were not asked, or asked twice."""
    found: dict[FrameKey, Sizes] = {}
    for asked in receipt.compile.accepted_inputs:
        key = build_frame_key(asked.frame)
        sizes = {
            " and ".join(its.dimensions): tuple(
                (first, None if last >= its.asked_to else last)
                for first, last in its.spans
                if first < last
            )
            for its in asked.sizes
        }
        found[key] = {} if key in found else sizes
    return found


def find_narrowed(before: Sizes, after: Sizes) -> Iterator[str]:
    """Find dimensions of which less is accepted than before, of those asked both times, described:
    "x.shape[0]: 2 or more → 2–15"."""
    for name, ranges in before.items():
        now = after.get(name, ranges)
        if not all(any(_is_inside(its, by) for by in now) for its in ranges):
            yield f"{name}: {format_ranges(ranges)} → {format_ranges(now)}"


def _is_inside(inner: Range, outer: Range) -> bool:
    (first, last), (begin, end) = inner, outer
    return begin <= first and (end is None or (last is not None and last <= end))


def format_ranges(ranges: Sequence[Range]) -> str:
    """Format ranges of sizes: "2 or more", "2–15, 20–31"."""
    shown = [f"{its} or more" if last is None else f"{its}–{last}" for its, last in ranges[:3]]
    return ", ".join(shown) or "single sizes"
