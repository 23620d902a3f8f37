"""Dimensions that vary: as the user names them by argument, and how they apply to a call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast


class ShapeUnusable(ValueError):
    """Arguments, outputs or settings that cannot be padded, with the leaf and what to do."""


class PaddingContaminates(ValueError):
    """Results depend on rows that are only padding."""


class CompiledAfterWarmup(RuntimeError):
    """A call compiled, or recorded a CUDA graph, though everything was warmed up."""


ROWS = "rows"
"""Name of the axis where only a dimension is given: `{"obs": 0}`."""

DimsGiven = Mapping[str, "int | Mapping[str, int]"]
"""As users write it: path of an argument, and its dimension or its named dimensions."""

AxisDims = tuple[tuple[int, int], ...]
"""Of one tensor: (index of the axis, dimension)."""

Sizes = tuple[int, ...]
"""A size for each axis."""


@dataclass(frozen=True, slots=True)
class Dims:
    """The axes by name, and the dimensions of each path in them."""

    axes: tuple[str, ...]
    """The first is the axis of rows: batches are split along it, and along no other."""
    paths: dict[str, dict[str, int]]
    """By path of an argument: dimension by axis."""

    def group_by_axis(self) -> tuple[tuple[str, ...], ...]:
        """Group the dimensions by axis, as paths and dimensions: "obs:0"."""
        return tuple(
            tuple(f"{path}:{dims[axis]}" for path, dims in self.paths.items() if axis in dims)
            for axis in self.axes
        )


def find_row_dim(dims: AxisDims) -> int | None:
    """Find the dimension along the axis of rows, which is axis 0; None where there is none."""
    return next((dim for axis, dim in dims if axis == 0), None)


def cut_to_sizes(tensor: Any, dims: AxisDims, sizes: Sizes) -> Any:
    """Cut a tensor to these sizes, from the beginning: a view, nothing is copied."""
    for axis, dim in dims:
        tensor = tensor.narrow(dim, 0, sizes[axis])
    return tensor


def compute_shape(tensor: Any, dims: AxisDims, sizes: Sizes) -> tuple[int, ...]:
    """Compute the shape that a tensor has at these sizes."""
    shape = list(tensor.shape)
    for axis, dim in dims:
        shape[dim] = sizes[axis]
    return tuple(shape)


def repeat_rows(torch: Any, rows: Any, lengths: Mapping[int, int]) -> Any:
    """Repeat rows up to a length by dimension: valid where made-up ones may not be."""
    for dim, length in lengths.items():
        order = torch.arange(length, device=rows.device) % rows.shape[dim]
        rows = rows.index_select(dim, order)
    return rows


def find_closest_path(paths: Iterable[str], path: str) -> str | None:
    """Find the longest of `paths` that `path` is, or is below; None where there is none."""
    fitting = [prefix for prefix in paths if path == prefix or path.startswith(f"{prefix}.")]
    return max(fitting, key=len, default=None)


def read_dims(given: Any, what: str = "dims") -> Dims:
    """Read the user's dims; `what` is their name in messages.

    Raises:
        ShapeUnusable: they name no argument, or a dimension is no integer.
    """
    how = f'{what}={{"obs": 0}} or {what}={{"tokens": {{"B": 0, "T": 1}}}}'
    if not isinstance(given, Mapping) or not given:
        raise ShapeUnusable(f"{what} must name at least one argument and its dimension: {how}")
    paths: dict[str, dict[str, int]] = {}
    for path, dims in cast(Mapping[Any, Any], given).items():
        named = cast(Mapping[Any, Any], dims if isinstance(dims, Mapping) else {ROWS: dims})
        numbers = [isinstance(dim, int) and not isinstance(dim, bool) for dim in named.values()]
        if not numbers or not all(numbers):
            raise ShapeUnusable(
                f"the dimension of {str(path)!r} must be given as in {how}, not as {dims!r}"
            )
        paths[str(path)] = {str(axis): int(dim) for axis, dim in named.items()}
    return Dims(tuple(dict.fromkeys(axis for dims in paths.values() for axis in dims)), paths)


def resolve_leaf_dims(
    dims: Dims, paths: Sequence[str], leaves: Sequence[Any], tensor: type
) -> list[AxisDims]:
    """Resolve the axes of each leaf of a call; () for one that is passed as it is.

    Raises:
        ShapeUnusable: a path is no argument or no tensor, or a tensor lacks the dimension.
    """
    met: set[str] = set()
    leaf_dims: list[AxisDims] = []
    for path, leaf in zip(paths, leaves, strict=True):
        axis_dims: AxisDims = ()
        named = find_closest_path(dims.paths, path)
        if named is not None:
            met.add(named)
            if isinstance(leaf, tensor):
                rank = int(leaf.dim())
                for axis, dim in dims.paths[named].items():
                    if not -rank <= dim < rank:
                        raise ShapeUnusable(
                            f"argument {path!r} has no dimension {dim}: its shape is "
                            f"{list(leaf.shape)}; correct its entry in dims, or name only the "
                            "tensors that have it"
                        )
                    axis_dims = (*axis_dims, (dims.axes.index(axis), dim % rank))
            elif path == named:
                raise ShapeUnusable(
                    f"argument {path!r} is named in dims but is a {type(leaf).__name__}: name the "
                    "tensors, or containers of them (dict, list, tuple, named tuple, dataclass)"
                )
        leaf_dims.append(axis_dims)
    for path in dims.paths:
        if path not in met:
            known = ", ".join(paths) or "no argument"
            raise ShapeUnusable(f"dims names {path!r}, but the call has: {known}")
    return leaf_dims
