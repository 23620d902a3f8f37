"""What the padding is filled with to find out whether a result depends on it."""

from __future__ import annotations

from typing import Any

from compilediag_harness.shapes.dims import AxisDims, Sizes

ZEROS, REAL_ROWS, LARGE, LARGER, NAN = "zeros", "real rows", "large", "larger", "nan"

FINITE = (ZEROS, REAL_ROWS, LARGE, LARGER)
"""The probes that a harmless function gives the same results for, to the last bit."""

SEEDS = {LARGE: 7, LARGER: 1234}
_SCALES = {LARGE: 1e3, LARGER: 3e4}
"""Several: a limit such as a capacity is only exceeded by some values."""


def fill(torch: Any, tensor: Any, dims: AxisDims, sizes: Sizes, probe: str) -> None:
    """Overwrites everything outside of the real sizes. Integers and flags get only values that are
    there, and zero: others may be no valid index."""
    real = tensor
    for axis, dim in dims:
        real = real.narrow(dim, 0, sizes[axis])
    kept = real.clone()
    tensor.copy_(_filling(torch, tensor, kept, dims, sizes, probe))
    real.copy_(kept)


def _filling(torch: Any, like: Any, real: Any, dims: AxisDims, sizes: Sizes, probe: str) -> Any:
    if probe == ZEROS or not real.numel():
        return torch.zeros_like(like)
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
    drawn = torch.randn(like.shape, generator=generator, dtype=torch.float32) * _SCALES[probe] + 7
    bound = torch.finfo(like.dtype).max / 4
    return drawn.clamp(-bound, bound).to(device=like.device, dtype=like.dtype)
