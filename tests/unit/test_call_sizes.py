"""The sizes that change from call to call, out of the shapes that the harness writes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compilediag.receipt.schema.invocations import VaryingSizesRecord
from compilediag.timeline.invocations import find_varying_sizes


def test_sizes_that_go_together_are_one() -> None:
    """The rows of a batch and of its mask change together; the width never does."""
    shapes = [("[8, 4], mask=[8]", 3), ("[16, 4], mask=[16]", 1), ("[8, 4], mask=[8]", 2)]
    assert find_varying_sizes(shapes, ("obs", "mask")) == VaryingSizesRecord(
        dims=(("obs:0", "mask:0"),), sizes=((8,), (16,)), counts=(5, 1)
    )


def test_two_independent_sizes_are_counted_together() -> None:
    """Rows and length: how often each pair came is what a grid is planned from."""
    shapes = [("[2, 7]", 1), ("[2, 9]", 4), ("[4, 7]", 2)]
    assert find_varying_sizes(shapes) == VaryingSizesRecord(
        dims=(("0:0",), ("0:1",)), sizes=((2, 7), (2, 9), (4, 7)), counts=(1, 4, 2)
    )


@pytest.mark.parametrize(
    "shapes",
    [
        [],
        [("[8, 4]", 9)],
        [("", 3), ("", 4)],
        [(None, 3), ("[symbolic]", 2), ("[Jagged]", 1)],
        [("[8]", 2), ("[8, 4]", 1)],
    ],
)
def test_nothing_changes_or_nothing_is_known(shapes: list[tuple[str | None, int]]) -> None:
    """One combination, none with plain sizes, or tensors of other ranks: there is no size."""
    assert find_varying_sizes(shapes) is None


def test_names_fit_or_are_not_used() -> None:
    """Names of another number of tensors, or one for two tensors, would name the wrong one."""
    shapes = [("[8], ids=[8]", 1), ("[9], ids=[9]", 1)]
    expected = VaryingSizesRecord(dims=(("0:0", "ids:0"),), sizes=((8,), (9,)), counts=(1, 1))
    for names in ((), ("x",), ("x", "x")):
        assert find_varying_sizes(shapes, names) == expected


@settings(deadline=None)
@given(
    st.dictionaries(
        st.tuples(st.integers(0, 9), st.integers(0, 9)), st.integers(1, 5), min_size=1, max_size=8
    )
)
def test_every_call_is_in_one_place(pairs: dict[tuple[int, int], int]) -> None:
    """The counts of the sizes and of the other calls add up to the calls."""
    shapes = [(f"[{one}, 3], y=[{other}]", count) for (one, other), count in pairs.items()]
    found = find_varying_sizes(shapes)
    if len(pairs) == 1:
        assert found is None
        return
    assert sum(found.counts) + found.other_calls == sum(pairs.values())
    assert len(set(found.sizes)) == len(found.sizes) == len(pairs)
