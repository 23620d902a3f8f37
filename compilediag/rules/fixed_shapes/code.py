"""A plan of sizes as the code that a program needs: the arguments of its `FixedShape`."""

from __future__ import annotations

import keyword
from collections.abc import Mapping, Sequence

from compilediag.rules.fixed_shapes.plan import CallablePlan

_AXES = ("rows", "length")
"""Names that the code gives to two sizes that change independently."""


def name_of(item: CallablePlan) -> str:
    """What the program calls it by, or would: `policy` for "Policy.forward"."""
    return item.held_by or _variable(item.name)


def has_size_twice(item: CallablePlan) -> bool:
    """One tensor has a size in two of its dimensions: `FixedShape` takes one."""
    dims = item.varying.dims
    return any(len(_dimensions(places)) < len(places) for places in dims)


def settings_of(item: CallablePlan) -> str:
    """`dims={"x": 0}, buckets=[8, 16]`."""
    return f"dims={_dims_of(item)}, buckets={buckets_of(item)}"


def buckets_of(item: CallablePlan, axes: Sequence[str] = _AXES) -> str:
    """The planned sizes."""
    return listed_buckets(axes, planned_sizes(item))


def planned_sizes(item: CallablePlan) -> tuple[tuple[int, ...], ...]:
    """Of each axis."""
    if item.grid is not None:
        return item.grid.first, item.grid.second
    return (item.buckets.buckets if item.buckets is not None else (),)


def listed_buckets(axes: Sequence[str], sizes: Sequence[Sequence[int]]) -> str:
    """Sizes as `FixedShape` takes them."""
    if len(sizes) == 1:
        return _listed(sizes[0])
    return _literal({axis: _listed(one) for axis, one in zip(axes, sizes, strict=False)})


def dimensions_of(item: CallablePlan) -> tuple[dict[str, int], ...]:
    """Of each axis, the dimension of each argument that has it."""
    return tuple(_dimensions(places) for places in item.varying.dims)


def _dims_of(item: CallablePlan) -> str:
    axes = dimensions_of(item)
    if item.grid is None:
        return _literal({tensor: str(dim) for tensor, dim in axes[0].items()})
    by_tensor: dict[str, dict[str, str]] = {}
    for axis, tensors in zip(_AXES, axes, strict=True):
        for tensor, dim in tensors.items():
            by_tensor.setdefault(tensor, {})[axis] = str(dim)
    return _literal({tensor: _literal(dims) for tensor, dims in by_tensor.items()})


def _variable(name: str) -> str:
    parts = [part for part in name.split(".") if part.isidentifier() and part != "forward"]
    if "<locals>" in name and name.endswith(".inner"):
        return "compiled"  # what torch wraps around a module
    base = parts[-1].lower() if parts and name.endswith(".forward") else (parts or ["compiled"])[-1]
    return "compiled" if keyword.iskeyword(base) else base


def _dimensions(places: Sequence[str]) -> dict[str, int]:
    parts = (place.rpartition(":") for place in places)
    return {name: int(dim) for name, _, dim in parts}


def _listed(sizes: Sequence[int]) -> str:
    return f"[{', '.join(map(str, sizes))}]"


def _literal(items: Mapping[str, str]) -> str:
    """A dict as Python writes it, its values as they are."""
    keys = (f'"{key}"' if key.isprintable() and '"' not in key else repr(key) for key in items)
    return "{" + ", ".join(f"{k}: {v}" for k, v in zip(keys, items.values(), strict=True)) + "}"
