"""Which dimensions of the outputs follow which axis, seen at two sizes and never guessed; the
padding cut off, the parts of a split batch put together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from compilediag_harness.shapes.dims import AxisDims, Dims
from compilediag_harness.shapes.shape_errors import ShapeUnusable
from compilediag_harness.shapes.trees import Structure, flatten, paths_of, rebuilt


@dataclass(frozen=True, slots=True)
class Outputs:
    """What a callable gives back, whatever the sizes."""

    structure: Structure
    paths: tuple[str, ...]
    dims: tuple[AxisDims, ...]
    """For each leaf; () for one that follows no axis."""
    template: Any
    """An output of one of the sizes, its tensors without rows and without storage to speak of."""

    def named(self, place: int) -> str:
        """The output as a message names it."""
        path = self.paths[place]
        return f"output {path!r}" if path else "the output"


def infer(
    run: Callable[[tuple[int, ...]], Any],
    axes: Sequence[str],
    base: tuple[int, ...],
    other: tuple[int, ...],
    tensor: type,
) -> Outputs:
    """Runs at `base`, and once for each axis with `other`'s size of it, and compares the shapes.

    Raises:
        ShapeUnusable: an output changes with an axis, but is not of its size.
    """
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
        for place, (one, two) in enumerate(zip(leaves, changed, strict=True)):
            told = _Compared(_called(paths[place]), name, base[axis], sizes[axis], axis)
            dims[place].extend(told.dims(one, two, tensor))
    return Outputs(
        structure,
        tuple(paths),
        tuple(tuple(item) for item in dims),
        rebuilt(first, _emptied(leaves, dims, tensor)),
    )


def given(dims: Dims, axes: Sequence[str], outputs: Any, tensor: type) -> Outputs:
    """As the user says it instead, checked against the outputs of one call.

    Raises:
        ShapeUnusable: a named output does not exist, or has no such dimension.
    """
    leaves: list[Any] = []
    structure = flatten(outputs, leaves)
    paths = paths_of(structure)
    found: list[AxisDims] = []
    for path, leaf in zip(paths, leaves, strict=True):
        named = dims.of_leaf(path) or dims.of_leaf("") if isinstance(leaf, tensor) else None
        pairs: list[tuple[int, int]] = []
        for axis, dim in named[1] if named else ():
            if axis not in axes or not -leaf.dim() <= dim < leaf.dim():
                raise ShapeUnusable(
                    f"out_dims gives {_called(path)} the dimension {dim} for {axis!r}, but its "
                    f"shape is {list(leaf.shape)} and the axes are {', '.join(axes)}"
                )
            pairs.append((list(axes).index(axis), dim % leaf.dim()))
        found.append(tuple(pairs))
    template = rebuilt(outputs, _emptied(leaves, found, tensor))
    return Outputs(structure, tuple(paths), tuple(found), template)


@dataclass(frozen=True, slots=True)
class _Compared:
    """One output at two sizes of one axis."""

    output: str
    axis: str
    base: int
    other: int
    place: int

    def dims(self, one: Any, two: Any, tensor: type) -> Iterator[tuple[int, int]]:
        if not isinstance(one, tensor) or not isinstance(two, tensor):
            if isinstance(one, (int, float, str)) and one != two:
                raise ShapeUnusable(
                    f"{self.output} is {one!r} at {self.axis}={self.base} and {two!r} at "
                    f"{self.other}: return it as a tensor with one entry a row, or not at all"
                )
            return
        shapes: Any = zip_longest(one.shape, two.shape)  # pyright: ignore[reportUnknownMemberType]
        for dim, (a, b) in enumerate(shapes):
            if a == b:
                continue
            if (a, b) != (self.base, self.other):
                raise ShapeUnusable(
                    f"{self.output} has the shape {list(one.shape)} at {self.axis}={self.base} "
                    f"and {list(two.shape)} at {self.other}: padding cannot be cut off where a "
                    "dimension is not of that size; return one entry a row"
                )
            yield self.place, dim


def _called(path: str) -> str:
    return f"output {path!r}" if path else "the output"


def _emptied(
    leaves: Sequence[Any], dims: Sequence[Sequence[tuple[int, int]]], tensor: type
) -> Iterator[Any]:
    for leaf, its in zip(leaves, dims, strict=True):
        if not isinstance(leaf, tensor):
            yield leaf
            continue
        small = leaf.detach()
        for _, dim in its:
            small = small.narrow(dim, 0, 0)
        yield small.clone().requires_grad_(bool(leaf.requires_grad))


def cut(
    outputs: Outputs,
    leaves: Sequence[Any],
    sizes: Sequence[int],
    bucket: Sequence[int],
    keep: Callable[[Any], bool],
) -> list[Any]:
    """The leaves without padding; those of which `keep` says so are copied.

    Raises:
        ShapeUnusable: an output has another shape than it had when its axes were found.
    """
    result: list[Any] = []
    for place, (leaf, dims) in enumerate(zip(leaves, outputs.dims, strict=True)):
        kept = leaf
        for axis, dim in dims:
            if dim >= kept.dim() or kept.shape[dim] != bucket[axis]:
                raise ShapeUnusable(
                    f"{outputs.named(place)} has the shape {list(leaf.shape)}, not "
                    f"{bucket[axis]} in dimension {dim} as at other sizes: padding cannot be cut "
                    "off"
                )
            if sizes[axis] != bucket[axis]:
                kept = kept.narrow(dim, 0, sizes[axis])
        result.append(kept.clone() if keep(leaf) else kept)
    return result


def joined(torch: Any, outputs: Outputs, parts: Sequence[Sequence[Any]]) -> list[Any]:
    """The leaves of the parts of a split batch put together along the first axis.

    Raises:
        ShapeUnusable: an output has no rows, and so no value for the whole batch.
    """
    result: list[Any] = []
    for place, column in enumerate(zip(*parts, strict=True)):
        dim = next((dim for axis, dim in outputs.dims[place] if axis == 0), None)
        if dim is not None:
            result.append(torch.cat(column, dim))
        elif isinstance(column[0], torch.Tensor) or any(item != column[0] for item in column):
            raise ShapeUnusable(
                f"{outputs.named(place)} has no rows, so its {len(column)} values of a split "
                "batch are not one: return it row by row and reduce it outside, add a larger "
                'bucket, or set overflow="error"'
            )
        else:
            result.append(column[0])
    return result


def without_rows(outputs: Outputs, sizes: Sequence[int], tensor: type, *, grad: bool) -> Any:
    """What an empty batch gives: every output with no rows.

    Raises:
        ShapeUnusable: an output has no rows, and so no value for none.
    """
    leaves: list[Any] = []
    flatten(outputs.template, leaves)
    made: list[Any] = []
    for place, (leaf, dims) in enumerate(zip(leaves, outputs.dims, strict=True)):
        if not isinstance(leaf, tensor):
            made.append(leaf)
            continue
        if all(axis != 0 for axis, _ in dims):
            raise ShapeUnusable(
                f"{outputs.named(place)} has no rows, so an empty batch has no value for it: "
                "skip empty batches"
            )
        shape = list(leaf.shape)
        for axis, dim in dims:
            shape[dim] = sizes[axis]
        empty = leaf.new_empty(shape)
        made.append(empty.requires_grad_() if grad and leaf.requires_grad else empty)
    return rebuilt(outputs.template, iter(made))
