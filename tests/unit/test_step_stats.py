"""Step times: exact figures, the sketch's error, spikes, warm-up."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compilediag.diagnosis.figures.steps import (
    MAX_SPIKES,
    RELATIVE_ERROR,
    SHORTEST_S,
    SUB_BUCKETS,
    compute_bucket,
    find_spikes,
)

DURATIONS = st.floats(min_value=SHORTEST_S, max_value=1e6)


@settings(deadline=None)
@given(DURATIONS)
def test_a_bucket_is_as_exact_as_promised(value: float) -> None:
    """The middle of a value's bucket is within the stated relative error."""
    exponent, sub = divmod(compute_bucket(value), SUB_BUCKETS)
    middle = math.ldexp(1 + (sub + 0.5) / SUB_BUCKETS, exponent)
    assert abs(middle - value) <= RELATIVE_ERROR * value


def test_bucket_zero_begins_at_one_second() -> None:
    """The origin of the buckets is documented and must not move."""
    assert [compute_bucket(1.0), compute_bucket(math.nextafter(1.0, 0.0)), compute_bucket(2.0)] == [
        0,
        -1,
        256,
    ]


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_zero_counts_as_the_shortest(value: float) -> None:
    """A duration below the clock's resolution has a bucket too."""
    assert compute_bucket(value) == compute_bucket(SHORTEST_S)


def test_spikes_are_after_warmup_and_in_order() -> None:
    """The first step, long because it compiles, is no spike; later long ones are."""
    assert find_spikes([5.0, 1.0, 3.0, 1.0, 1.1, 2.5], warmup=1) == (2, 5)
    assert find_spikes([5.0], warmup=1) == ()


def test_only_the_longest_spikes_are_kept() -> None:
    """The list is bounded: the longest stay, in the order of the steps."""
    walls = [1.0] * 1000 + [10.0 + place for place in range(MAX_SPIKES + 5)]
    assert find_spikes(walls, 0) == tuple(range(1005, 1005 + MAX_SPIKES))
