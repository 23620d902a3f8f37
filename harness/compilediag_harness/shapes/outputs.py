"""Which dimensions of the outputs follow which axis: found once, by running at two sizes and never
guessed, or given by the user."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from compilediag_harness.shapes.dims import AxisDims, Dims, Sizes, closest
from compilediag_harness.shapes.shape_errors import ShapeUnusable
from compilediag_harness.shapes.trees import Structure, flatten, paths_of, rebuilt


@dataclass(frozen=True, slots=True)
class Outputs:
    """What a callable returns, whatever the sizes."""

    structure: Structure
    paths: tuple[str, ...]
    dims: tuple[AxisDims, ...]
    """For each leaf; () for one that follows no axis."""
    template: Any
    """An output of one of the sizes, its tensors without rows and without storage to speak of."""

    def name_of(self, index: int) -> str:
        """The output in a message."""
        return _name(self.paths[index])


def infer_outputs(
    run: Callable[[Sizes], Any], axes: Sequence[str], base: Sizes, other: Sizes, tensor: type
) -> Outputs:
    """Runs at `base`, and once for each axis with `other`'s size of it, and compares the shapes."""
    first = run(base)
    leaves: list[Any] = []
    structure = flatten(first, leaves)
    paths = paths_of(structure)
    dims: list[list[tuple[int, int]]] = [[] for _ in leaves]
    for axis, name in enumerate(axes):
        sizes = tuple(other[i] if i == axis else size for i, size in enumerate(base))
        changed: list[Any] = []
        if flatten(run(sizes), changed) != structure:
            raise ShapeUnusable(
                f"the outputs have another structure at {name}={sizes[axis]} than at "
                f"{base[axis]}: return the same containers at every size"
            )
        for index, pair in enumerate(zip(leaves, changed, strict=True)):
            found = _following(paths[index], pair, name, (base[axis], sizes[axis]), tensor)
            dims[index].extend((axis, dim) for dim in found)
    return _outputs(first, structure, leaves, dims, tensor)


def given_outputs(dims: Dims, axes: Sequence[str], outputs: Any, tensor: type) -> Outputs:
    """As the user gives them, checked against the outputs of one call."""
    leaves: list[Any] = []
    structure = flatten(outputs, leaves)
    found: list[list[tuple[int, int]]] = []
    for path, leaf in zip(paths_of(structure), leaves, strict=True):
        found.append([])
        named = dims.paths.get(closest(dims.paths, path) or "", {})
        for axis, dim in named.items() if isinstance(leaf, tensor) else ():
            if axis not in axes or not -leaf.dim() <= dim < leaf.dim():
                raise ShapeUnusable(
                    f"out_dims gives {_name(path)} the dimension {dim} for {axis!r}, but its "
                    f"shape is {list(leaf.shape)} and the axes are {', '.join(axes)}"
                )
            found[-1].append((list(axes).index(axis), dim % leaf.dim()))
    return _outputs(outputs, structure, leaves, found, tensor)


def _outputs(
    value: Any,
    structure: Structure,
    leaves: Sequence[Any],
    dims: Sequence[Sequence[tuple[int, int]]],
    tensor: type,
) -> Outputs:
    template = rebuilt(value, _emptied(leaves, dims, tensor))
    return Outputs(structure, tuple(paths_of(structure)), tuple(map(tuple, dims)), template)


def _following(
    path: str, outputs: tuple[Any, Any], axis: str, sizes: tuple[int, int], tensor: type
) -> Iterator[int]:
    """The dimensions in which one output at two sizes of an axis is of those sizes."""
    one, two = outputs
    if not isinstance(one, tensor) or not isinstance(two, tensor):
        if isinstance(one, (int, float, str)) and one != two:
            raise ShapeUnusable(
                f"{_name(path)} is {one!r} at {axis}={sizes[0]} and {two!r} at {sizes[1]}: return "
                "it as a tensor with one entry a row, or not at all"
            )
        return
    shapes: Any = zip_longest(one.shape, two.shape)  # pyright: ignore[reportUnknownMemberType]
    for dim, pair in enumerate(shapes):
        if pair[0] == pair[1]:
            continue
        if pair != sizes:
            raise ShapeUnusable(
                f"{_name(path)} has the shape {list(one.shape)} at {axis}={sizes[0]} and "
                f"{list(two.shape)} at {sizes[1]}: padding cannot be cut off where a dimension is "
                "not of that size; return one entry a row"
            )
        yield dim


def _name(path: str) -> str:
    return f"output {path!r}" if path else "the output"


def _emptied(
    leaves: Sequence[Any], dims: Sequence[Sequence[tuple[int, int]]], tensor: type
) -> Iterator[Any]:
    for leaf, its in zip(leaves, dims, strict=True):
        if not isinstance(leaf, tensor):
            yield leaf
            continue
        small: Any = leaf.detach()
        for _, dim in its:
            small = small.narrow(dim, 0, 0)
        yield small.clone().requires_grad_(bool(leaf.requires_grad))
