"""What a call looks like: which leaves are padded, and that the others are as they were before.

Everything but the named sizes is what torch compiled for. What changes there is compiled again, or
wrong; so it is refused, with the name of the leaf.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from compilediag_harness.shapes.dims import AxisDims, Dims, dims_of_leaves
from compilediag_harness.shapes.shape_errors import ShapeUnusable
from compilediag_harness.shapes.trees import Structure, paths_of
from compilediag_harness.torch_internals import torch_api

MOST_SHAPES = 4096
"""Shapes of one leaf that are known to agree."""

_PLAIN = (type(None), bool, int, float, complex, str, bytes, enum.Enum)


@dataclass(frozen=True, slots=True)
class PaddedLeaf:
    """A leaf that is padded."""

    place: int
    """Among the leaves of a call."""
    path: str
    dims: AxisDims
    row_dim: int | None
    """Along which a large batch is split; None for a leaf without rows."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Calls of one structure."""

    paths: tuple[str, ...]
    padded: tuple[PaddedLeaf, ...]
    kept: tuple[int, ...]
    """Places of the leaves that are passed as they are."""


def parameters_of(function: Callable[..., Any], module: type) -> tuple[str, ...]:
    """Names of the positional parameters; those of `*args` have none."""
    target = torch_api.original_of(function)
    target = target.forward if isinstance(target, module) else target
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):  # a builtin
        return ()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(item.name for item in parameters if item.kind in positional)


def layout_of(
    dims: Dims,
    structure: tuple[Structure, Structure],
    leaves: Sequence[Any],
    parameters: Sequence[str],
    tensor: type,
) -> Layout:
    """The layout of calls of this structure.

    Raises:
        ShapeUnusable: `dims` does not fit it.
    """
    paths = _paths(structure, parameters)
    found = dims_of_leaves(dims, paths, leaves, tensor)
    padded = tuple(
        PaddedLeaf(place, paths[place], its, next((dim for axis, dim in its if axis == 0), None))
        for place, its in enumerate(found)
        if its
    )
    if all(leaf.row_dim is None for leaf in padded):
        raise ShapeUnusable(
            f"no tensor of this call has the axis {dims.axes[0]!r}: the first axis in dims is the "
            "one of rows"
        )
    kept = tuple(place for place, its in enumerate(found) if not its)
    return Layout(tuple(paths), padded, kept)


def _paths(structure: tuple[Structure, Structure], parameters: Sequence[str]) -> list[str]:
    args, kwargs = structure
    paths: list[str] = []
    for place, child in enumerate(args[2] if args else ()):
        name = parameters[place] if place < len(parameters) else str(place)
        paths.extend(paths_of(child, name))
    return paths + paths_of(kwargs)


def sizes_of(layout: Layout, leaves: Sequence[Any], axes: Sequence[str]) -> tuple[int, ...]:
    """The real size of each axis; 0 for one that no leaf has.

    Raises:
        ShapeUnusable: two tensors disagree.
    """
    sizes: list[int | None] = [None] * len(axes)
    for leaf in layout.padded:
        shape = leaves[leaf.place].shape
        for axis, dim in leaf.dims:
            size = shape[dim]
            if sizes[axis] is None:
                sizes[axis] = size
            elif sizes[axis] != size:
                raise _disagreement(layout, leaves, axes[axis], axis, leaf, size)
    return tuple([size or 0 for size in sizes])


def _disagreement(
    layout: Layout, leaves: Sequence[Any], axis: str, place: int, leaf: PaddedLeaf, size: int
) -> ShapeUnusable:
    first, dim = next(
        (item, dim)
        for item in layout.padded
        for axis_place, dim in item.dims
        if axis_place == place
    )
    return ShapeUnusable(
        f"argument {leaf.path!r} has {size} in its dimension of {axis!r}, but {first.path!r} has "
        f"{leaves[first.place].shape[dim]}: both are named with this axis and must agree; give the "
        "dimensions of dims other axis names if they are different things"
    )


@dataclass(slots=True)
class _Known:
    """One leaf as it was in the first call."""

    place: int
    fact: Any
    padded: frozenset[int]
    shapes: set[Any]
    """Shapes that were found to agree."""


class Facts:
    """What the leaves of the first call were, by path, besides the named sizes."""

    def __init__(self) -> None:
        self._by_path: dict[str, Any] | None = None
        self._known: dict[int, list[_Known]] = {}

    def check(self, layout: Layout, leaves: Sequence[Any], tensor: type) -> None:
        """Remembers the first call; compares every other with it.

        Raises:
            ShapeUnusable: a leaf is another than it was.
        """
        known = self._known.get(id(layout))
        if known is None:
            known = self._learn(layout, leaves, tensor)
        for item in known:
            leaf = leaves[item.place]
            if isinstance(leaf, tensor):
                told: Any = leaf
                # The usual case: nothing is built to be compared.
                if told.shape in item.shapes and (told.dtype, told.device) == item.fact[1:]:
                    continue
            now = _fact(leaf, tensor, item.padded)
            if not _same(item.fact, now):
                raise _changed(layout.paths[item.place], item.fact, now)
            if isinstance(leaf, tensor) and len(item.shapes) < MOST_SHAPES:
                item.shapes.add(leaf.shape)  # pyright: ignore[reportAttributeAccessIssue]

    def _learn(self, layout: Layout, leaves: Sequence[Any], tensor: type) -> list[_Known]:
        facts = {
            path: _fact(leaf, tensor, _fixed_dims(layout, place))
            for place, (path, leaf) in enumerate(zip(layout.paths, leaves, strict=True))
        }
        if self._by_path is None:
            self._by_path = facts
        elif surplus := sorted(facts.keys() ^ self._by_path.keys()):
            there = "has" if surplus[0] in facts else "lacks"
            raise ShapeUnusable(
                f"this call {there} {surplus[0]!r}, other than the first: wrap the callable once "
                "for each form of call"
            )
        known = [
            _Known(place, self._by_path[path], _fixed_dims(layout, place), set())
            for place, path in enumerate(layout.paths)
        ]
        self._known[id(layout)] = known
        return known


def _fixed_dims(layout: Layout, place: int) -> frozenset[int]:
    return frozenset(dim for leaf in layout.padded if leaf.place == place for _, dim in leaf.dims)


def _fact(leaf: Any, tensor: type, padded: frozenset[int]) -> Any:
    if isinstance(leaf, tensor):
        told: Any = leaf
        shape = tuple(-1 if dim in padded else int(size) for dim, size in enumerate(told.shape))
        return shape, told.dtype, told.device
    value: Any = leaf
    kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
    return value if isinstance(leaf, _PLAIN) else kind


def _same(before: Any, now: Any) -> bool:
    if type(before) is not type(now):  # True == 1, but torch compiles for one of them
        return False
    return before == now or (before != before and now != now)  # noqa: PLR0124 - NaN is as it was


def _changed(path: str, before: Any, now: Any) -> ShapeUnusable:
    if isinstance(before, tuple) and isinstance(now, tuple):
        return ShapeUnusable(
            f"argument {path!r} was {_tensor(before)} and is now {_tensor(now)}: torch compiles "
            "that again; name a dimension that varies in dims, convert the rest before the call"
        )
    told: list[Any] = [before, now]
    first, second = (_tensor(item) if isinstance(item, tuple) else repr(item) for item in told)
    return ShapeUnusable(
        f"argument {path!r} was {first} and is now {second}: torch compiles every value again; "
        "pass a tensor, or wrap the callable once for each value (functools.partial)"
    )


def _tensor(fact: Any) -> str:
    shape, dtype, device = fact
    spelled = ", ".join("*" if size == -1 else str(size) for size in shape)
    return f"a tensor [{spelled}] of {dtype} on {device}"
