"""What the padding is filled with to find out whether a result depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compilediag_harness.shapes.dims import AxisDims, Sizes

PAD, ZEROS, REAL_ROWS = "padding in use", "zeros", "real rows"
LOWEST, HIGHEST, LARGE, LARGER, NAN = "lowest", "highest", "large", "larger", "nan"
POSITIVE, NEGATIVE, ROLLED, MIXED = "large positive", "large negative", "rolled", "mixed"

FINITE = (PAD, ZEROS, REAL_ROWS, LOWEST, HIGHEST, LARGE, LARGER)
"""The probes that a harmless function gives the same results for, to the last bit. With the padding
in use, which is always the first, the others are compared."""

SEEDS = {LARGE: 7, LARGER: 1234, POSITIVE: 7, NEGATIVE: 7, MIXED: 7}
_SCALES = {LARGE: 1e3, LARGER: 3e4, POSITIVE: 1e3, NEGATIVE: 1e3}
"""Several: a limit such as a capacity is only exceeded by some values."""

BATCHES = (ROLLED, HIGHEST, LOWEST, MIXED)
"""Contents of whole batches that are tried besides the example, of its own magnitude."""

LAST_ROWS = (ZEROS, REAL_ROWS, LOWEST, HIGHEST, LARGE, LARGER, POSITIVE, NEGATIVE)
"""Contents of the rows at the end of batches whose last row is then repeated."""


def fill(torch: Any, tensor: Any, dims: AxisDims, sizes: Sizes, probe: str) -> None:
    """Overwrites everything outside the real sizes. Integers and flags get only values that are
    there, and zero: others may be no valid index."""
    real = tensor
    for axis, dim in dims:
        real = real.narrow(dim, 0, sizes[axis])
    kept = real.clone()
    tensor.copy_(_filling(torch, tensor, kept, dims, sizes, probe))
    real.copy_(kept)


def batch(torch: Any, rows: Any, dims: AxisDims, probe: str) -> Any:
    """As many rows with other contents."""
    along = [dim for _, dim in dims]
    if probe == ROLLED or (probe == MIXED and not rows.is_floating_point()):
        return rows.roll([1] * len(along), along)
    sizes = {axis: int(rows.shape[dim]) for axis, dim in dims}
    return _filling(torch, rows, rows.clone(), dims, sizes, probe)


def _filling(
    torch: Any,
    like: Any,
    real: Any,
    dims: AxisDims,
    sizes: Sizes | Mapping[int, int],
    probe: str,
) -> Any:
    if probe == ZEROS or not real.numel():
        return torch.zeros_like(like)
    if probe in (LOWEST, HIGHEST):
        return _extreme(torch, like, real, [dim for _, dim in dims], probe == HIGHEST)
    if probe == REAL_ROWS or not like.is_floating_point():
        # Rotated, so that the first rows of the padding are not the last real ones again.
        rows = real
        for axis, dim in dims:
            order = torch.arange(like.shape[dim], device=like.device) % sizes[axis]
            rows = rows.index_select(dim, order)
        return rows
    if probe == NAN:
        return torch.full_like(like, float("nan"))
    generator = torch.Generator(device="cpu").manual_seed(SEEDS[probe])
    drawn = torch.randn(like.shape, generator=generator, dtype=torch.float32)
    if probe == MIXED:
        finite = real.detach().float().nan_to_num(0.0, 0.0, 0.0)
        drawn = drawn * (4.0 * finite.std(correction=0).cpu() + 1e-3) + finite.mean().cpu()
    elif probe in (POSITIVE, NEGATIVE):
        drawn = drawn.abs() * (1 if probe == POSITIVE else -1) * _SCALES[probe]
    else:
        drawn = drawn * _SCALES[probe] + 7
    bound = torch.finfo(like.dtype).max / 4
    return drawn.clamp(-bound, bound).to(device=like.device, dtype=like.dtype)


def _extreme(torch: Any, like: Any, real: Any, dims: list[int], highest: bool) -> Any:
    """The largest or the smallest value that is there: of each column; of all where values are
    numbers of something, so that a number that every row has is left out too."""
    values = real.detach()
    if values.is_complex():
        return torch.zeros_like(like)
    if values.dtype == torch.bool:
        values = values.to(torch.uint8)
    if values.is_floating_point():
        value = values.amax(dims, keepdim=True) if highest else values.amin(dims, keepdim=True)
    else:
        value = values.max() if highest else values.min()
    return value.to(like.dtype).expand(like.shape)
