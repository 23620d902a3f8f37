"""The lane of a receipt, field by field: what must be equal for two receipts to be comparable."""

from __future__ import annotations

from typing import Any

from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import flatten


def lane_fields(receipt: Receipt) -> dict[str, Any]:
    """Every field of the lane by its dotted path, `name` included; None where it is not known."""
    return dict(flatten(receipt.header.lane))
