"""Outputs of a callable at any size: the dimensions that follow each axis, found once by running at
two sizes and never guessed, or given by the user. By them padding is cut off and parts are joined.

What cannot be looked into might hold padding that nobody would cut off: it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from compilediag_harness.base.object_graph import format_class_name
from compilediag_harness.shapes.dims import (
    AxisDims,
    Dims,
    ShapeUnusable,
    Sizes,
    compute_shape,
    cut_to_sizes,
    find_closest_path,
    find_row_dim,
)
from compilediag_harness.shapes.reachable import find_tensors
from compilediag_harness.shapes.trees import (
    Structure,
    flatten,
    is_plain,
    is_rebuilt_by_others,
    list_paths,
    rebuild,
)


@dataclass(frozen=True, slots=True)
class Outputs:
    """The results of a callable, whatever the sizes."""

    structure: Structure
    paths: tuple[str, ...]
    dims: tuple[AxisDims, ...]
    """For each leaf; () for one that follows no axis."""
    template: Any
    """An output of one of the sizes, its tensors without rows and without storage to speak of."""
    empty: tuple[Any, ...]
    """The leaves of the template; None for one that is no tensor."""

    def take_leaves(
        self, result: Any, sizes: Sizes, bucket: Sizes, must_copy: Callable[[Any], bool]
    ) -> list[Any]:
        """Take the leaves of a result, without padding, copied where `must_copy`.

        Raises:
            ShapeUnusable: the result has another structure, or a leaf another shape, than known.
        """
        structure, leaves = flatten(result)
        if structure != self.structure:
            raise make_structure_error()
        for index, (leaf, empty, dims) in enumerate(
            zip(leaves, self.empty, self.dims, strict=True)
        ):
            if empty is None:  # no tensor
                if not is_plain(leaf):
                    raise _make_leaf_error(self.paths[index], leaf)
                continue
            shape = compute_shape(empty, dims, bucket)
            if getattr(leaf, "shape", None) != shape:
                if not hasattr(leaf, "shape"):
                    raise _make_leaf_error(self.paths[index], leaf, "a tensor")
                raise ShapeUnusable(
                    f"{_name_output(self.paths[index])} has the shape {list(leaf.shape)}, not "
                    f"{list(shape)} as at other sizes or with other values: padding cannot be cut "
                    "off; return one entry a row"
                )
            real_rows = leaf if sizes == bucket else cut_to_sizes(leaf, dims, sizes)
            leaves[index] = real_rows.clone() if must_copy(leaf) else real_rows
        return leaves

    def join_parts(self, torch: Any, parts: Sequence[Sequence[Any]]) -> list[Any]:
        """Join the leaves of the parts of a split batch along the axis of rows.

        Raises:
            ShapeUnusable: an output without rows differs between the parts, or is a tensor.
        """
        result: list[Any] = []
        for index, column in enumerate(zip(*parts, strict=True)):
            row_dim = find_row_dim(self.dims[index])
            if row_dim is not None:
                result.append(torch.cat(column, row_dim))
            elif isinstance(column[0], torch.Tensor) or any(value != column[0] for value in column):
                raise ShapeUnusable(
                    f"{_name_output(self.paths[index])} has no rows, so its {len(column)} values "
                    "of a split batch are not one: return it row by row and reduce it outside, "
                    'add a larger bucket, or set overflow="error"'
                )
            else:
                result.append(column[0])
        return result

    def make_empty(self, sizes: Sizes, tensor: type, *, grad: bool) -> Any:
        """Make the outputs for an empty batch: each with no rows.

        Raises:
            ShapeUnusable: an output is a tensor without the axis of rows.
        """
        leaves = flatten(self.template)[1]
        for index, (leaf, dims) in enumerate(zip(leaves, self.dims, strict=True)):
            if not isinstance(leaf, tensor):
                continue
            if find_row_dim(dims) is None:
                raise ShapeUnusable(
                    f"{_name_output(self.paths[index])} has no rows, so an empty batch has no "
                    "value for it: skip empty batches"
                )
            empty = leaf.new_empty(compute_shape(leaf, dims, sizes))
            leaves[index] = empty.requires_grad_() if grad and leaf.requires_grad else empty
        return rebuild(self.template, iter(leaves))


def infer_outputs(
    run: Callable[[Sizes], Any], axes: Sequence[str], base: Sizes, other: Sizes, tensor: type
) -> Outputs:
    """Run at `base`, and once for each axis with `other`'s size of it, and compare the shapes.

    Raises:
        ShapeUnusable: padding could not be cut off some output; it names the output.
    """
    first = run(base)
    structure, leaves = flatten(first)
    paths = list_paths(structure)
    dims: list[list[tuple[int, int]]] = [[] for _ in leaves]
    for axis, name in enumerate(axes):
        sizes = tuple(other[i] if i == axis else size for i, size in enumerate(base))
        found, changed = flatten(run(sizes))
        if found != structure:
            raise ShapeUnusable(
                f"the outputs have another structure at {name}={sizes[axis]} than at "
                f"{base[axis]}: return the same containers at every size"
            )
        for index, pair in enumerate(zip(leaves, changed, strict=True)):
            following = _iterate_dims(paths[index], pair, name, (base[axis], sizes[axis]), tensor)
            dims[index].extend((axis, dim) for dim in following)
    return _build_outputs(first, structure, leaves, dims, tensor)


def build_given_outputs(dims: Dims, axes: Sequence[str], outputs: Any, tensor: type) -> Outputs:
    """Build the outputs by the user's out_dims, checked against the outputs of one call.

    Raises:
        ShapeUnusable: out_dims do not fit the outputs, or an output cannot be looked into.
    """
    structure, leaves = flatten(outputs)
    leaf_dims: list[list[tuple[int, int]]] = []
    for path, leaf in zip(list_paths(structure), leaves, strict=True):
        leaf_dims.append([])
        named = dims.paths.get(find_closest_path(dims.paths, path) or "", {})
        for axis, dim in named.items() if isinstance(leaf, tensor) else ():
            if axis not in axes or not -leaf.dim() <= dim < leaf.dim():
                raise ShapeUnusable(
                    f"out_dims gives {_name_output(path)} the dimension {dim} for {axis!r}, but "
                    f"its shape is {list(leaf.shape)} and the axes are {', '.join(axes)}"
                )
            leaf_dims[-1].append((list(axes).index(axis), dim % leaf.dim()))
    return _build_outputs(outputs, structure, leaves, leaf_dims, tensor)


def _build_outputs(
    value: Any,
    structure: Structure,
    leaves: Sequence[Any],
    dims: Sequence[Sequence[tuple[int, int]]],
    tensor: type,
) -> Outputs:
    paths = tuple(list_paths(structure))
    small: list[Any] = []
    for path, leaf, axis_dims in zip(paths, leaves, dims, strict=True):
        if not isinstance(leaf, tensor):
            if not is_plain(leaf):
                raise _make_leaf_error(path, leaf)
            small.append(leaf)
            continue
        rows: Any = leaf
        if str(rows.layout) != "torch.strided" or rows.is_nested:
            raise _make_leaf_error(path, leaf)
        # Cut to nothing along its axes and copied: the template shares no memory with an output.
        empty = rows.detach()
        for _, dim in axis_dims:
            empty = empty.narrow(dim, 0, 0)
        small.append(empty.clone().requires_grad_(bool(rows.requires_grad)))
    template = rebuild(value, iter(small))
    flat = flatten(template)[1]
    known = {id(leaf) for leaf in leaves}
    hidden = [path for path, inner in find_tensors(value, tensor) if id(inner) not in known]
    if hidden:
        raise ShapeUnusable(
            f"the output, a {format_class_name(value)}, holds a tensor at {hidden[0]!r} that is "
            "none of its members: return it as one, in a tuple, dict or dataclass"
        )
    if is_rebuilt_by_others(structure):
        taken, again = flatten(rebuild(template, iter(leaves)))
        pairs = zip(again, leaves, strict=False)
        same = all(one is other or (is_plain(one) and one == other) for one, other in pairs)
        if not same or len(again) != len(leaves) or taken != structure:
            raise ShapeUnusable(
                f"the output, a {format_class_name(value)}, is not the same when it is put "
                "together again from its members: return a tuple, dict or dataclass of tensors"
            )
    empty_leaves = tuple(leaf if isinstance(leaf, tensor) else None for leaf in flat)
    return Outputs(structure, paths, tuple(map(tuple, dims)), template, empty_leaves)


def make_structure_error() -> ShapeUnusable:
    """Make the error of outputs that are not as they were in the first call."""
    return ShapeUnusable(
        "the outputs have another structure than at first: return the same containers in every call"
    )


def _make_leaf_error(path: str, leaf: Any, was: str = "") -> ShapeUnusable:
    layout = f" with the layout {leaf.layout}" if hasattr(leaf, "layout") else ""
    before = f" where it was {was} at first" if was else ""
    return ShapeUnusable(
        f"{_name_output(path)} is a {format_class_name(leaf)}{layout}{before}, in which "
        "padding could not be found and cut off: return its tensors in a tuple, dict or dataclass "
        "and make it outside, or register its class with torch.utils._pytree.register_pytree_node"
    )


def _iterate_dims(
    path: str, outputs: tuple[Any, Any], axis: str, sizes: tuple[int, int], tensor: type
) -> Iterator[int]:
    """Iterate over the dimensions in which one output at two sizes of an axis is of those sizes."""
    one, two = outputs
    if not isinstance(one, tensor) or not isinstance(two, tensor):
        if isinstance(one, tensor) or isinstance(two, tensor):
            raise make_structure_error()
        for leaf in outputs:
            if not is_plain(leaf):
                raise _make_leaf_error(path, leaf)
        if one != two and one == one:  # noqa: PLR0124 - NaN is as it was
            raise ShapeUnusable(
                f"{_name_output(path)} is {one!r} at {axis}={sizes[0]} and {two!r} at {sizes[1]}: "
                "return it as a tensor with one entry a row, or not at all"
            )
        return
    shapes: Any = zip_longest(one.shape, two.shape)  # pyright: ignore[reportUnknownMemberType]
    for dim, pair in enumerate(shapes):
        if pair[0] == pair[1]:
            continue
        if pair != sizes:
            raise ShapeUnusable(
                f"{_name_output(path)} has the shape {list(one.shape)} at {axis}={sizes[0]} and "
                f"{list(two.shape)} at {sizes[1]}: padding cannot be cut off where a dimension is "
                "not of that size; return one entry a row"
            )
        yield dim


def _name_output(path: str) -> str:
    return f"output {path!r}" if path else "the output"
