"""Two results compared: to the last bit, and within the noise of the arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

COARSE = 1e-4
"""Precisions above this are coarse (16 bit): a few roundings are already much of a value."""

_ROUNDINGS = {False: 32.0, True: 4.0}
"""How many roundings of a value are always noise; up to 8 times as many where two sizes show it."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far two tensors of one shape are apart."""

    differs: bool
    """By more than noise, where both are finite."""
    nonfinite: bool
    """One is NaN or infinite where the other is not."""
    bitwise: bool
    max_abs: float
    rows: int | None
    """None where the tensor has no rows."""
    bad_rows: int


def compared(torch: Any, one: Any, other: Any, noise: float, row_dim: int | None) -> Comparison:
    """`noise`: difference between two sizes that was measured, from `noise_of`."""
    rows = None if row_dim is None else int(one.shape[row_dim])
    if bool(torch.equal(one, other)):
        return Comparison(False, False, True, 0.0, rows, 0)
    if one.is_complex():
        one, other = torch.view_as_real(one), torch.view_as_real(other)
    first, second = one.double(), other.double()
    same = (first == second) | (first.isnan() & second.isnan())
    finite = first.isfinite() & second.isfinite()
    apart = torch.where(finite, (first - second).abs(), torch.zeros_like(first))
    bad = apart > _tolerance(torch, one, first, noise)
    return Comparison(
        differs=bool(bad.any()),
        nonfinite=bool((~same & ~finite).any()),
        bitwise=bool(same.all()),
        max_abs=float(apart.max()) if apart.numel() else 0.0,
        rows=rows,
        bad_rows=_rows_of(bad, row_dim),
    )


def _rows_of(bad: Any, row_dim: int | None) -> int:
    if row_dim is None:
        return 0
    return int(bad.movedim(row_dim, 0).flatten(1).any(1).sum()) if bad.dim() > 1 else int(bad.sum())


def _tolerance(torch: Any, one: Any, values: Any, noise: float) -> float:
    if not one.is_floating_point():
        return 0.0
    eps = float(torch.finfo(one.dtype).eps)
    finite = values[values.isfinite()].abs()
    scale = float(finite.max()) if finite.numel() else 0.0
    lowest = _ROUNDINGS[eps > COARSE] * eps * scale
    # Bounded: the difference of two sizes may be the very dependence to be found.
    return min(max(lowest, 4.0 * noise), 8.0 * lowest)


def noise_of(all_rows: Any, one_less: Any, row_dim: int | None) -> float:
    """Largest difference of the rows that both results have; 0 where they cannot be compared."""
    if one_less is None or row_dim is None or not all_rows.is_floating_point():
        return 0.0
    common = all_rows.narrow(row_dim, 0, one_less.shape[row_dim])
    if common.shape != one_less.shape or not common.numel():
        return 0.0
    apart = (common.double() - one_less.double()).abs()
    return float(apart.nan_to_num(0.0, 0.0).max())
