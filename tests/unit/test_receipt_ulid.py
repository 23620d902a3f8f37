"""Receipt ids: known values, order in time, and what is refused."""

from __future__ import annotations

import pytest

from compilediag.runs.metadata import ulid


def test_known_value() -> None:
    """The ULID specification's own example, its time part is 01ARYZ6S41; and the largest id."""
    assert ulid(1469918176385, bytes(10)) == "01ARYZ6S410000000000000000"
    assert ulid((1 << 48) - 1, b"\xff" * 10) == "7" + "Z" * 25


def test_later_ids_sort_after_earlier_ones() -> None:
    """Ids sort by time, whatever their random part is."""
    assert ulid(1000, b"\xff" * 10) < ulid(1001, bytes(10))


@pytest.mark.parametrize(("unix_ms", "size"), [(-1, 10), (1 << 48, 10), (0, 9)])
def test_what_does_not_fit_is_refused(unix_ms: int, size: int) -> None:
    """A time outside 48 bits, or another number of random bytes, is an error."""
    with pytest.raises(ValueError, match="ULID"):
        ulid(unix_ms, bytes(size))
