"""Finds out which dimensions of the outputs follow which axis: once, by running at two sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compilediag_harness.shapes import unpadding
from compilediag_harness.shapes.call_parts import Call, Sizes
from compilediag_harness.shapes.padding import pad_of_leaf, padded
from compilediag_harness.shapes.shape_errors import ShapeUnusable
from compilediag_harness.shapes.side_effects import unnoticed
from compilediag_harness.torch_internals import torch_api

if TYPE_CHECKING:
    from compilediag_harness.shapes.padded_calls import PaddedCalls


def outputs_of(calls: PaddedCalls, call: Call) -> unpadding.Outputs:
    """What the callable gives back; remembered.

    Raises:
        ShapeUnusable: the outputs do not tell, or it cannot run at one of the sizes.
    """
    if calls.outputs is None:
        settings = calls.settings
        two = [_two_sizes(its) for its in settings.buckets]
        base, other = tuple(pair[0] for pair in two), tuple(pair[1] for pair in two)

        def run(sizes: Sizes) -> Any:
            try:
                return _eagerly(calls, call, sizes)
            except Exception as error:
                if sizes == base:  # it would fail in the call itself too
                    raise
                raise _fails(calls, sizes, error) from error

        with unnoticed(calls.torch, settings.function):
            axes, dims = settings.dims.axes, settings.out_dims
            if dims is None:
                calls.outputs = unpadding.infer(run, axes, base, other, calls.tensor)
            else:
                calls.outputs = unpadding.given(dims, axes, run(base), calls.tensor)
    return calls.outputs


def _eagerly(calls: PaddedCalls, call: Call, bucket: Sizes) -> Any:
    """The callable as it was written, on as much of the batch as fits."""
    settings = calls.settings
    sizes = tuple(min(pair) for pair in zip(call.sizes, bucket, strict=True))
    leaves = list(call.leaves)
    for leaf in call.layout.padded:
        rows = leaves[leaf.place]
        for axis, dim in leaf.dims:
            rows = rows.narrow(dim, 0, sizes[axis])
        pad = pad_of_leaf(settings.pad, leaf.path)
        leaves[leaf.place] = padded(calls.torch, rows, leaf.dims, sizes, bucket, pad)
    args, kwargs = calls.arguments(call, leaves)
    if settings.mask is not None:
        kwargs[settings.mask] = calls.mask(call, sizes[0], bucket[0], fresh=True)
    return torch_api.original_of(settings.function)(*args, **kwargs)


def _fails(calls: PaddedCalls, sizes: Sizes, error: Exception) -> ShapeUnusable:
    shown = dict(zip(calls.settings.dims.axes, sizes, strict=True))
    return ShapeUnusable(
        f"{calls.declared.function.function} fails at {shown}, where it was run to see which "
        "dimensions of its outputs follow the batch: say it with out_dims, or choose sizes that it "
        f"can run at ({type(error).__name__}: {error})"
    )


def _two_sizes(sizes: Sequence[int]) -> tuple[int, int]:
    """Two sizes of an axis, small ones."""
    if len(sizes) > 1:
        return sizes[0], sizes[1]
    return sizes[0], sizes[0] - 1 if sizes[0] > 2 else sizes[0] + 1
