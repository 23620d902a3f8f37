"""Batch sizes: what fits, rounded without passing it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compilediag_harness.shapes.buckets import BucketsImpossible, batch_size, memory_cap


def test_the_cap_from_two_peaks() -> None:
    """100 bytes and 10 a row: of 1,000 bytes 90 rows can be had, of 109 not one."""
    assert memory_cap(2, 120, 8, 180, 1000) == 90
    with pytest.raises(BucketsImpossible, match="not one row"):
        memory_cap(2, 120, 8, 180, 109)
    with pytest.raises(BucketsImpossible, match="further apart"):
        memory_cap(2, 120, 8, 120, 1000)


@pytest.mark.parametrize(
    ("wanted", "cap", "multiple", "power_of_two", "size"),
    [
        (100, 512, 8, False, 104),
        (100, 103, 8, False, 96),  # 104 would pass the cap
        (10_100, 512, 1, False, 512),
        (100, 512, 1, True, 128),
        (100, 127, 1, True, 64),  # 128 would pass the cap
        (3, 512, 8, True, 8),
        (1, 1, 1, True, 1),
    ],
)
def test_rounded_within_the_cap(
    wanted: int, cap: int, multiple: int, power_of_two: bool, size: int
) -> None:
    """Up to the next allowed size, and down where that would pass the cap."""
    assert batch_size(wanted, cap=cap, multiple=multiple, power_of_two=power_of_two) == size


@given(
    wanted=st.integers(1, 5000),
    cap=st.integers(1, 5000),
    multiple=st.sampled_from([1, 2, 3, 8, 12]),
    power_of_two=st.booleans(),
)
def test_never_above_the_cap(wanted: int, cap: int, multiple: int, power_of_two: bool) -> None:
    """Whatever is asked for: allowed, at most the cap, and no smaller allowed size would do."""
    try:
        size = batch_size(wanted, cap=cap, multiple=multiple, power_of_two=power_of_two)
    except BucketsImpossible:
        assert cap < multiple or (power_of_two and (multiple & (multiple - 1) or cap < multiple))
        return
    assert 1 <= size <= cap
    assert size % multiple == 0
    assert not power_of_two or size & (size - 1) == 0
    smaller = size // 2 if power_of_two else size - multiple
    assert smaller < max(wanted, multiple)


def test_numbers_out_of_range() -> None:
    """No rows, and a multiple that no power of two has."""
    with pytest.raises(BucketsImpossible, match="no batch size"):
        batch_size(0, cap=8)
    with pytest.raises(BucketsImpossible, match="no power of two"):
        batch_size(8, cap=64, multiple=12, power_of_two=True)
    with pytest.raises(BucketsImpossible, match="multiple of 8 is 7 or less"):
        batch_size(8, cap=7, multiple=8)
