"""Which dimension of which argument varies: what the user names, and how it meets a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from compilediag_harness.shapes.shape_errors import ShapeUnusable

ROWS = "rows"
"""Name of the axis where only a dimension is given: `{"obs": 0}`."""

DimsGiven = Mapping[str, "int | Mapping[str, int]"]
"""As users write it: path of an argument, and its dimension or its named dimensions."""

AxisDims = tuple[tuple[int, int], ...]
"""For one tensor: (position of the axis, dimension)."""


@dataclass(frozen=True, slots=True)
class Dims:
    """The axes by name, and the dimensions of each path in them."""

    axes: tuple[str, ...]
    """The first is the axis of rows: batches are split along it, and along no other."""
    paths: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]

    def place(self, axis: str) -> int:
        return self.axes.index(axis)

    def by_axis(self) -> tuple[tuple[str, ...], ...]:
        """Of each axis the places that have it: "obs:0"."""
        return tuple(
            tuple(
                f"{path}:{dim}" for path, named in self.paths for its, dim in named if its == axis
            )
            for axis in self.axes
        )

    def of_leaf(self, path: str) -> tuple[str, tuple[tuple[str, int], ...]] | None:
        """The longest named path that `path` is, or is below."""
        fitting = [item for item in self.paths if path == item[0] or path.startswith(f"{item[0]}.")]
        return max(fitting, key=lambda item: len(item[0]), default=None)


def read_dims(given: Any, what: str = "dims") -> Dims:
    """What was given, checked.

    Raises:
        ShapeUnusable: it names nothing, or not as it should.
    """
    how = f'{what}={{"obs": 0}} or {what}={{"tokens": {{"B": 0, "T": 1}}}}'
    if not isinstance(given, Mapping) or not given:
        raise ShapeUnusable(f"{what} must name at least one argument and its dimension: {how}")
    axes: dict[str, None] = {}
    paths: list[tuple[str, tuple[tuple[str, int], ...]]] = []
    for path, dims in cast(Mapping[Any, Any], given).items():
        named = _named(str(path), dims, how)
        axes.update(dict.fromkeys(named))
        paths.append((str(path), tuple(named.items())))
    return Dims(tuple(axes), tuple(paths))


def _named(path: str, dims: Any, how: str) -> dict[str, int]:
    if isinstance(dims, int) and not isinstance(dims, bool):
        return {ROWS: dims}
    if isinstance(dims, Mapping) and dims:
        named = cast(Mapping[Any, Any], dims)
        if all(isinstance(item, int) and not isinstance(item, bool) for item in named.values()):
            return {str(axis): int(dim) for axis, dim in named.items()}
    raise ShapeUnusable(f"the dimension of {path!r} must be given as in {how}, not as {dims!r}")


def dims_of_leaves(
    dims: Dims, paths: Sequence[str], leaves: Sequence[Any], tensor: type
) -> list[AxisDims]:
    """For each leaf of a call the axes it has; () for one that is passed as it is.

    Raises:
        ShapeUnusable: a named path does not exist, is no tensor, or has no such dimension.
    """
    met: set[str] = set()
    found: list[AxisDims] = []
    for path, leaf in zip(paths, leaves, strict=True):
        named = dims.of_leaf(path)
        if named is None:
            found.append(())
            continue
        met.add(named[0])
        if isinstance(leaf, tensor):
            found.append(tuple((dims.place(axis), _dim(path, leaf, d)) for axis, d in named[1]))
        elif path == named[0]:
            raise ShapeUnusable(
                f"argument {path!r} is named in dims but is a {type(leaf).__name__}: name the "
                "tensors, or containers of them (dict, list, tuple, named tuple, dataclass)"
            )
        else:
            found.append(())
    for path, _ in dims.paths:
        if path not in met:
            known = ", ".join(paths) or "no argument"
            raise ShapeUnusable(f"dims names {path!r}, but the call has: {known}")
    return found


def _dim(path: str, leaf: Any, dim: int) -> int:
    rank = int(leaf.dim())
    if not -rank <= dim < rank:
        raise ShapeUnusable(
            f"argument {path!r} has no dimension {dim}: its shape is {list(leaf.shape)}; "
            "correct its entry in dims, or name only the tensors that have it"
        )
    return dim % rank
