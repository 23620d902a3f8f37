"""Containers taken apart into leaves, and put together again: tuples, named tuples, lists, dicts
and dataclasses. Everything else is a leaf.

A structure is what is left without the leaves: None for a leaf, else the container's type, the
names of its members and their structures. Two calls of equal structure have the same paths.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, MutableMapping
from typing import Any

Structure = tuple[Any, Any, tuple[Any, ...]] | None

_LEAF, _SEQUENCE, _MAPPING, _DATACLASS = range(4)
_MAX_TYPES = 512

_kinds: dict[Any, int] = {}


def flatten(value: Any, leaves: list[Any]) -> Structure:
    """The structure of `value`; its leaves are added to `leaves`, from left to right."""
    kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
    known = _kind_of(kind)
    if known == _LEAF:
        leaves.append(value)
        return None
    if known == _SEQUENCE:
        return kind, len(value), tuple([flatten(item, leaves) for item in value])
    if known == _MAPPING:
        names = tuple(value)
        return kind, names, tuple([flatten(value[name], leaves) for name in names])
    names = _fields_of(value)
    return kind, names, tuple([flatten(getattr(value, name), leaves) for name in names])


def rebuilt(value: Any, leaves: Iterator[Any]) -> Any:
    """A container like `value` with other leaves, taken in order. `value` is not changed."""
    kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
    known = _kind_of(kind)
    if known == _LEAF:
        return next(leaves)
    if known == _SEQUENCE:
        items = [rebuilt(item, leaves) for item in value]
        return kind._make(items) if hasattr(kind, "_make") else kind(items)
    if kind is dict:
        return {name: rebuilt(item, leaves) for name, item in value.items()}
    other = copy.copy(value)
    if known == _MAPPING:
        for name in tuple(value):
            other[name] = rebuilt(value[name], leaves)
        return other
    for name in _fields_of(value):
        object.__setattr__(other, name, rebuilt(getattr(value, name), leaves))
    return other


def paths_of(structure: Structure, prefix: str = "") -> list[str]:
    """Where each leaf is: "batch.obs", "0.logits"; "" when the whole value is a leaf."""
    if structure is None:
        return [prefix]
    kind, names, children = structure
    if _kind_of(kind) == _SEQUENCE:
        names = getattr(kind, "_fields", range(len(children)))
    return [
        path
        for name, child in zip(names, children, strict=True)
        for path in paths_of(child, f"{prefix}.{name}" if prefix else str(name))
    ]


def _kind_of(kind: Any) -> int:
    known = _kinds.get(kind)
    if known is not None:
        return known
    if issubclass(kind, (tuple, list)):
        # torch.Size, a tuple of a type of its own, holds plain numbers: no leaves to be padded.
        is_size = kind.__module__ == "torch" and kind.__name__ == "Size"
        known = _LEAF if is_size else _SEQUENCE
    elif issubclass(kind, MutableMapping):
        known = _MAPPING
    else:
        known = _DATACLASS if hasattr(kind, "__dataclass_fields__") else _LEAF
    if len(_kinds) >= _MAX_TYPES:
        _kinds.clear()  # a program that makes classes in a loop must not fill our memory
    _kinds[kind] = known
    return known


def _fields_of(value: Any) -> tuple[str, ...]:
    kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
    return tuple(name for name in kind.__dataclass_fields__ if hasattr(value, name))
