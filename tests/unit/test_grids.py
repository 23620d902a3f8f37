"""Grids of buckets: within their cells, each axis the best for the other, better than usual."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compilediag_harness.shapes.buckets import BucketsImpossible, plan
from compilediag_harness.shapes.grids import evaluate_grid, plan_grid

PAIRS = st.dictionaries(
    st.tuples(st.integers(1, 40), st.integers(1, 40)), st.integers(1, 9), min_size=1, max_size=12
)


@settings(max_examples=60, deadline=None)
@given(counts=PAIRS, k=st.integers(1, 9))
def test_each_axis_is_the_best_for_the_other(counts: dict[tuple[int, int], int], k: int) -> None:
    """The grid keeps to its cells, and no other buckets of one axis would pad less."""
    found = plan_grid(counts, k)
    assert len(found.first) * len(found.second) <= k
    assert found.graphs <= k
    weights: dict[int, int] = {}
    for (one, other), count in counts.items():
        width = min(size for size in found.second if size >= other)
        weights[one] = weights.get(one, 0) + width * count
    first = plan(weights, k // len(found.second)).buckets
    assert evaluate_grid(counts, first, found.second).run_elements >= found.run_elements


def test_a_grid_of_its_own_sizes_wastes_nothing() -> None:
    """Two sizes an axis and four cells: every pair has its graph; the rounding to eights costs."""
    counts = {(4, 16): 3, (4, 64): 1, (32, 16): 1, (32, 64): 2}
    found = plan_grid(counts, 4)
    assert (found.first, found.second, found.graphs, found.waste) == ((4, 32), (16, 64), 4, 0.0)
    assert plan_grid(counts, 4, multiples=(8, 1)).first == (8, 32)


def test_what_cannot_be_planned() -> None:
    """No pair, no cell, and a pair larger than a given grid."""
    with pytest.raises(BucketsImpossible, match="at least one cell"):
        plan_grid({}, 4)
    with pytest.raises(BucketsImpossible, match="at least one cell"):
        plan_grid({(2, 2): 1}, 0)
    with pytest.raises(BucketsImpossible, match="ends below the pair"):
        evaluate_grid({(9, 2): 1}, [8], [8])
