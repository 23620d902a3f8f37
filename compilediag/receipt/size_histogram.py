"""Sizes in ranges between the edges of buckets, with what each bucket pads. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Range(NamedTuple):
    """Neighbouring sizes."""

    low: int
    high: int
    calls: int


class Section(NamedTuple):
    """The sizes that run in one bucket."""

    bucket: int
    ranges: tuple[Range, ...]
    """Ascending, without gaps, from the smallest size that was seen."""
    calls: int
    waste: float
    """Padding as a share of the rows."""


class Histogram(NamedTuple):
    """All sizes of one callable."""

    sections: tuple[Section, ...]
    split: Range | None
    """Batches above the largest bucket, which run in several calls."""


def histogram(counts: Mapping[int, int], buckets: Sequence[int], most_ranges: int) -> Histogram:
    """The sizes by bucket, each bucket in equally many ranges; sizes of no rows are left out.

    Args:
        counts: how often each size was seen.
        buckets: ascending.
        most_ranges: about how many ranges there may be.
    """
    by_bucket: dict[int, dict[int, int]] = {bucket: {} for bucket in buckets}
    above: dict[int, int] = {}
    for size, count in sorted(counts.items()):
        place = bisect_left(buckets, size)
        if size and count:
            (by_bucket[buckets[place]] if place < len(buckets) else above)[size] = count
    each = max(1, most_ranges // len(buckets))
    return Histogram(
        tuple(_section(bucket, seen, each) for bucket, seen in by_bucket.items() if seen),
        Range(min(above), max(above), sum(above.values())) if above else None,
    )


def _section(bucket: int, seen: Mapping[int, int], most: int) -> Section:
    calls = sum(seen.values())
    rows = sum(size * count for size, count in seen.items())
    return Section(bucket, _ranges(seen, most), calls, bucket * calls / rows - 1.0)


def _ranges(seen: Mapping[int, int], most: int) -> tuple[Range, ...]:
    low, high = min(seen), max(seen)
    width = -(-(high - low + 1) // most)
    calls = [0] * (-(-(high - low + 1) // width))
    for size, count in seen.items():
        calls[(size - low) // width] += count
    return tuple(
        Range(low + place * width, min(low + (place + 1) * width - 1, high), count)
        for place, count in enumerate(calls)
    )
