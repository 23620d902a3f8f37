"""What as many sizes would have padded, had they been chosen for the calls that came.

Pure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from compilediag.timeline.fixed_shapes import FixedShapeRun
from compilediag_harness.shapes.buckets import plan
from compilediag_harness.shapes.grids import plan_grid

MOST_ALIGNED = 8
"""Sizes that are multiples of it, or of a smaller power of two, stay so: kernels like them."""


@dataclass(frozen=True, slots=True)
class PlannedPadding:
    """Other sizes, as many, and what the same calls would run in them."""

    buckets: tuple[tuple[int, ...], ...]
    """Of each axis, ascending."""
    run_elements: int
    """The sizes of the axes multiplied, over all calls, padding included. Never too small."""


def planned_padding(item: FixedShapeRun) -> PlannedPadding | None:
    """None where it cannot be known: without a call, with more than two axes, and where the
    program gave a cost of its own, which padding does not follow.

    A large batch that was split counts as the calls it became; fewer of them may be needed.
    """
    if item.priced or not item.real:
        return None
    if len(item.buckets) == 1:
        counts = {sizes[0]: count for sizes, count in item.real.items()}
        (buckets,) = item.buckets
        found = plan(counts, len(buckets), multiple=_aligned(buckets))
        return PlannedPadding((found.buckets,), found.run_rows)
    if len(item.buckets) == 2:
        return _of_a_grid(item)
    return None


def _of_a_grid(item: FixedShapeRun) -> PlannedPadding:
    first, second = item.buckets
    counts: Counter[tuple[int, int]] = Counter()
    for sizes, count in item.real.items():
        # A length of 0 runs in the smallest bucket, as 1 does.
        counts[max(sizes[0], 1), max(sizes[1], 1)] += count
    grid = plan_grid(
        counts,
        len(first) * len(second),
        multiples=(_aligned(first), _aligned(second)),
    )
    return PlannedPadding((grid.first, grid.second), grid.run_elements)


def _aligned(buckets: Iterable[int]) -> int:
    """The power of two up to MOST_ALIGNED of which all buckets are multiples."""
    return math.gcd(MOST_ALIGNED, *buckets)
