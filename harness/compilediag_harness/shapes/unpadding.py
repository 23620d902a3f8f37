"""Padding cut off the outputs of a call, and the parts of a split batch put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compilediag_harness.shapes.dims import Sizes, row_dim_of
from compilediag_harness.shapes.outputs import Outputs
from compilediag_harness.shapes.shape_errors import ShapeUnusable
from compilediag_harness.shapes.trees import flatten, rebuilt


def cut(
    outputs: Outputs,
    leaves: Sequence[Any],
    sizes: Sizes,
    bucket: Sizes,
    must_copy: Callable[[Any], bool],
) -> list[Any]:
    """The leaves without padding, copied where `must_copy`."""
    result: list[Any] = []
    for index, (leaf, dims) in enumerate(zip(leaves, outputs.dims, strict=True)):
        kept = leaf
        for axis, dim in dims:
            if dim >= kept.dim() or kept.shape[dim] != bucket[axis]:
                raise ShapeUnusable(
                    f"{outputs.name_of(index)} has the shape {list(leaf.shape)}, not "
                    f"{bucket[axis]} in dimension {dim} as at other sizes: padding cannot be cut "
                    "off"
                )
            if sizes[axis] != bucket[axis]:
                kept = kept.narrow(dim, 0, sizes[axis])
        result.append(kept.clone() if must_copy(leaf) else kept)
    return result


def joined(torch: Any, outputs: Outputs, parts: Sequence[Sequence[Any]]) -> list[Any]:
    """The leaves of the parts of a split batch put together along the first axis."""
    result: list[Any] = []
    for index, column in enumerate(zip(*parts, strict=True)):
        row_dim = row_dim_of(outputs.dims[index])
        if row_dim is not None:
            result.append(torch.cat(column, row_dim))
        elif isinstance(column[0], torch.Tensor) or any(item != column[0] for item in column):
            raise ShapeUnusable(
                f"{outputs.name_of(index)} has no rows, so its {len(column)} values of a split "
                "batch are not one: return it row by row and reduce it outside, add a larger "
                'bucket, or set overflow="error"'
            )
        else:
            result.append(column[0])
    return result


def without_rows(outputs: Outputs, sizes: Sizes, tensor: type, *, grad: bool) -> Any:
    """The outputs for an empty batch: each with no rows."""
    leaves: list[Any] = []
    flatten(outputs.template, leaves)
    for index, (leaf, dims) in enumerate(zip(leaves, outputs.dims, strict=True)):
        if not isinstance(leaf, tensor):
            continue
        if row_dim_of(dims) is None:
            raise ShapeUnusable(
                f"{outputs.name_of(index)} has no rows, so an empty batch has no value for it: "
                "skip empty batches"
            )
        shape = list(leaf.shape)
        for axis, dim in dims:
            shape[dim] = sizes[axis]
        empty = leaf.new_empty(shape)
        leaves[index] = empty.requires_grad_() if grad and leaf.requires_grad else empty
    return rebuilt(outputs.template, iter(leaves))
