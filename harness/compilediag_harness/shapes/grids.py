"""Buckets for two sizes that change together, such as batch and sequence length: one graph a cell.

One axis is planned exactly while the other stands still, in turn, until neither gets better. That
is no proof of the best grid, so several starts are tried. Pure, standard library only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compilediag_harness.shapes.buckets import BucketsImpossible, plan

Pair = tuple[int, int]

MAX_ROUNDS = 32
"""Of planning one axis after the other; each makes the grid better, so few are needed."""


@dataclass(frozen=True, slots=True)
class GridPlan:
    """Buckets of two axes, and what the observed pairs of sizes cost in them."""

    first: tuple[int, ...]
    second: tuple[int, ...]
    graphs: int
    """Cells in which a call runs."""
    elements: int
    """First size times second size, over all calls."""
    run_elements: int
    """The same with padding."""

    @property
    def waste(self) -> float:
        """Padding as a share of the elements."""
        return self.run_elements / self.elements - 1.0 if self.elements else 0.0


def plan_grid(counts: Mapping[Pair, int], k: int, *, multiples: Pair = (1, 1)) -> GridPlan:
    """Plan a grid of at most `k` cells whose padded elements are few; what a call costs is taken to
    follow its elements. `counts`: how often each pair of sizes was seen; `multiples`: of the
    buckets of the two axes.

    Raises:
        BucketsImpossible: no pair was seen, or a number is out of range.
    """
    seen = {pair: count for pair, count in counts.items() if count and all(pair)}
    if k < 1 or not seen:
        raise BucketsImpossible(
            "a grid needs at least one cell and one pair of sizes that was seen"
        )
    # Numbers of buckets of the two axes; where one may have more, fewer are not tried.
    shapes = [(one, k // one) for one in range(1, k + 1) if k // (k // one) == one]
    plans = [_settle_axes(seen, shape, multiples, first) for shape in shapes for first in (0, 1)]
    return min(plans, key=lambda plan: (plan.run_elements, plan.graphs))


def evaluate_grid(
    counts: Mapping[Pair, int], first: Sequence[int], second: Sequence[int]
) -> GridPlan:
    """Compute what the observed pairs cost in a given grid, both axes ascending.

    Raises:
        BucketsImpossible: a pair is larger than the grid.
    """
    cells: set[Pair] = set()
    elements = run_elements = 0
    for (one, other), count in counts.items():
        if one > first[-1] or other > second[-1]:
            raise BucketsImpossible(f"the grid ends below the pair of sizes {one}, {other}")
        cell = (first[bisect_left(first, one)], second[bisect_left(second, other)])
        cells.add(cell)
        elements += one * other * count
        run_elements += cell[0] * cell[1] * count
    return GridPlan(tuple(first), tuple(second), len(cells), elements, run_elements)


def _settle_axes(seen: Mapping[Pair, int], shape: Pair, multiples: Pair, first: int) -> GridPlan:
    """Plan in turn until neither axis gets better; the other one starts with a bucket a size."""
    axes: list[tuple[int, ...]] = [tuple(sorted({pair[axis] for pair in seen})) for axis in (0, 1)]
    plans: list[GridPlan] = []
    for _ in range(1 + MAX_ROUNDS):
        for axis in (first, 1 - first):
            axes[axis] = _plan_axis(seen, axes, axis, shape, multiples)
        plans.append(evaluate_grid(seen, axes[0], axes[1]))
        if len(plans) > 1 and plans[-1].run_elements >= plans[-2].run_elements:
            break
    return min(plans, key=lambda plan: plan.run_elements)


def _plan_axis(
    seen: Mapping[Pair, int], axes: list[tuple[int, ...]], axis: int, shape: Pair, multiples: Pair
) -> tuple[int, ...]:
    """Plan the best buckets of one axis: a call counts as often as the bucket of its other size."""
    others = axes[1 - axis]
    weights: dict[int, int] = {}
    for pair, count in seen.items():
        width = others[bisect_left(others, pair[1 - axis])]
        weights[pair[axis]] = weights.get(pair[axis], 0) + count * width
    return plan(weights, shape[axis], multiple=multiples[axis]).buckets
