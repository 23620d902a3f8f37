"""Receipt ids: known values, and order in time."""

from compilediag.runs.pipeline import make_ulid


def test_known_value() -> None:
    """The ULID specification's own example, its time part is 01ARYZ6S41; and the largest id."""
    assert make_ulid(1469918176385, bytes(10)) == "01ARYZ6S410000000000000000"
    assert make_ulid((1 << 48) - 1, b"\xff" * 10) == "7" + "Z" * 25


def test_later_ids_sort_after_earlier_ones() -> None:
    """Ids sort by time, whatever their random part is."""
    assert make_ulid(1000, b"\xff" * 10) < make_ulid(1001, bytes(10))
