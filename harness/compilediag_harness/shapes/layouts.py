"""Layout of a call: the leaves that are padded, and a check that the others did not change.

torch compiled for everything but the named sizes. A change there compiles again, or gives a wrong
result; so it is refused, with the name of the leaf.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from compilediag_harness.shapes.dims import (
    AxisDims,
    Dims,
    ShapeUnusable,
    Sizes,
    find_closest_path,
    find_row_dim,
    resolve_leaf_dims,
)
from compilediag_harness.shapes.padding import Pad
from compilediag_harness.shapes.trees import Structure, get_class, is_plain, list_paths
from compilediag_harness.torch_internals import torch_api

MAX_SHAPES = 4096
"""Of one leaf, those that are remembered as matching."""

_CONSTANTS = (type(None), bool, int, float, complex, str, bytes, enum.Enum)


@dataclass(frozen=True, slots=True)
class PaddedLeaf:
    """A leaf that is padded."""

    index: int
    """Among the leaves of a call."""
    path: str
    dims: AxisDims
    row_dim: int | None
    """Along which a large batch is split; None for a leaf without rows."""
    pad: Pad


@dataclass(frozen=True, slots=True)
class Layout:
    """Calls of one structure."""

    paths: tuple[str, ...]
    padded: tuple[PaddedLeaf, ...]
    matched: list[set[Any]] = field(default_factory=list[set[Any]], compare=False)
    """Of each leaf: shapes, types and devices of tensors that were as in the first call."""


class FlatCall(NamedTuple):
    """One call of the user's, taken apart."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: list[Any]
    layout: Layout
    sizes: Sizes
    """Real size of each axis."""

    @property
    def others(self) -> dict[str, Any]:
        """The arguments that are not padded and could be changed, by path."""
        padded = {leaf.index for leaf in self.layout.padded}
        named = enumerate(zip(self.layout.paths, self.leaves, strict=True))
        return {
            path: leaf
            for index, (path, leaf) in named
            if index not in padded and not is_plain(leaf)
        }


def read_parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    """Read the parameters of a callable; none where it has no signature, as a builtin."""
    try:
        return tuple(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return ()


def list_parameters(function: Callable[..., Any], module: type) -> tuple[str, ...]:
    """List the names of the positional parameters; those of `*args` have none."""
    target = torch_api.get_original(function)
    parameters = read_parameters(target.forward if isinstance(target, module) else target)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(parameter.name for parameter in parameters if parameter.kind in positional)


def build_layout(
    dims: Dims,
    pads: Mapping[str, Pad],
    structure: Structure,
    leaves: Sequence[Any],
    parameters: Sequence[str],
    tensor: type,
) -> Layout:
    """Build the layout of calls of this structure.

    Raises:
        ShapeUnusable: the dims do not fit the call, or no tensor has the axis of rows.
    """
    args, kwargs = structure[2] if structure else (None, None)
    paths: list[str] = []
    for index, child in enumerate(args[2] if args else ()):
        name = parameters[index] if index < len(parameters) else str(index)
        paths.extend(list_paths(child, name))
    paths.extend(list_paths(kwargs))
    leaf_dims = resolve_leaf_dims(dims, paths, leaves, tensor)
    padded = tuple(
        PaddedLeaf(at, path, its, find_row_dim(its), pads[find_closest_path(pads, path) or ""])
        for at, (path, its) in enumerate(zip(paths, leaf_dims, strict=True))
        if its
    )
    if all(leaf.row_dim is None for leaf in padded):
        raise ShapeUnusable(
            f"no tensor of this call has the axis {dims.axes[0]!r}: the first axis in dims is the "
            "one of rows"
        )
    return Layout(tuple(paths), padded)


def collect_sizes(layout: Layout, leaves: Sequence[Any], axes: Sequence[str]) -> Sizes:
    """Collect the real size of each axis; 0 for one that no leaf has.

    Raises:
        ShapeUnusable: two leaves have different sizes of one axis.
    """
    first: list[tuple[int, str] | None] = [None] * len(axes)
    for leaf in layout.padded:
        shape = leaves[leaf.index].shape
        for axis, dim in leaf.dims:
            known = first[axis]
            if known is None:
                first[axis] = shape[dim], leaf.path
            elif known[0] != shape[dim]:
                raise ShapeUnusable(
                    f"argument {leaf.path!r} has {shape[dim]} in its dimension of {axes[axis]!r}, "
                    f"but {known[1]!r} has {known[0]}: both are named with this axis and must "
                    "agree; give the dimensions of dims other axis names if they are different "
                    "things"
                )
    return tuple([known[0] if known else 0 for known in first])


class _TensorFact(NamedTuple):
    """Facts of a tensor that must not change."""

    shape: tuple[int, ...]
    """-1 for a dimension that is padded."""
    dtype: Any
    device: Any

    def __repr__(self) -> str:
        shape = ", ".join("*" if size == -1 else str(size) for size in self.shape)
        return f"a tensor [{shape}] of {self.dtype} on {self.device}"


_OTHER_SHAPE = (
    "torch compiles that again; name a dimension that varies in dims, convert the rest before the "
    "call"
)
_OTHER_VALUE = (
    "torch compiles every value again; pass a tensor, or wrap the callable once for each value "
    "(functools.partial)"
)


def check_facts(first: dict[str, Any], layout: Layout, leaves: Sequence[Any], tensor: type) -> None:
    """Remember in `first` what the leaves of the first call were, but for the named sizes; compare
    every other call with it.

    Raises:
        ShapeUnusable: a leaf changed in what torch compiled for; it names the leaf.
    """
    if not layout.matched:
        layout.matched.extend(set[Any]() for _ in leaves)
        if first and (surplus := sorted(set(layout.paths) ^ first.keys())):
            there = "has" if surplus[0] in layout.paths else "lacks"
            raise ShapeUnusable(
                f"this call {there} {surplus[0]!r}, other than the first: wrap the callable once "
                "for each form of call"
            )
    for index, (leaf, matched) in enumerate(zip(leaves, layout.matched, strict=True)):
        is_tensor = isinstance(leaf, tensor)
        seen = (leaf.shape, leaf.dtype, leaf.device) if is_tensor else None
        if seen in matched:
            continue  # the usual case: nothing is built to be compared
        padded = {dim for entry in layout.padded if entry.index == index for _, dim in entry.dims}
        if is_tensor:
            shape = tuple(-1 if dim in padded else int(n) for dim, n in enumerate(leaf.shape))
            now: Any = _TensorFact(shape, leaf.dtype, leaf.device)
        else:
            now = leaf if isinstance(leaf, _CONSTANTS) else get_class(leaf)
        before = first.setdefault(layout.paths[index], now)
        # True == 1, but torch compiles for one of them; and NaN is as it was.
        same = before == now or (before != before and now != now)  # noqa: PLR0124
        if not same or type(before) is not type(now):
            is_shape = isinstance(before, _TensorFact) and isinstance(now, _TensorFact)
            raise ShapeUnusable(
                f"argument {layout.paths[index]!r} was {before!r} and is now {now!r}: "
                + (_OTHER_SHAPE if is_shape else _OTHER_VALUE)
            )
        if is_tensor and len(matched) < MAX_SHAPES:
            matched.add(seen)
