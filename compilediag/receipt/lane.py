"""The lane of a receipt, field by field: what must be equal for two receipts to be comparable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import as_plain


def lane_fields(receipt: Receipt) -> dict[str, Any]:
    """Every field of the lane by its dotted path, `name` included; None where it is not known."""
    return dict(flatten(as_plain(receipt.header.lane)))


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested objects by their dotted paths; a list is a leaf."""
    if isinstance(value, Mapping):
        for key, item in cast(Mapping[str, Any], value).items():
            yield from flatten(item, f"{path}.{key}" if path else key)
    else:
        yield path, value
