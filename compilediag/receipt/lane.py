"""The lane of a receipt, field by field: what must be equal for two receipts to be comparable."""

from __future__ import annotations

from typing import Any

from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import flatten

CHANGED_BY_FIXES = frozenset(
    {
        "name",
        "precision",
        *(
            f"numerics_flags.{flag}"
            for flag in (
                *("dynamic", "matmul_precision", "allow_tf32_matmul", "deterministic"),
                *("default_dtype", "autocast_cpu", "autocast_cuda"),
            )
        ),
    }
)
"""Fields of the lane that a fix may change: the script (a copy with the fix), `dynamic=`, and the
settings of CD111, which are set before the first compiled call or where autocast is entered."""


def lane_fields(receipt: Receipt) -> dict[str, Any]:
    """Every field of the lane by its dotted path, `name` included; None where it is not known."""
    return dict(flatten(receipt.header.lane))
