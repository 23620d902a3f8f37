"""Containers taken apart into leaves, and put together again.

Tuples, named tuples, lists, dicts, dataclasses and SimpleNamespaces, with the attributes that an
instance has besides; and whatever is registered with torch's pytree. Everything else is a leaf.

A structure is what is left without the leaves: None for a leaf, else the container's type, the
names of its members and their structures. Two calls of equal structure have the same paths.
"""

from __future__ import annotations

import collections
import copy
import enum
import functools
import numbers
import types
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, NamedTuple

from compilediag_harness.base.object_graph import get_class, is_a
from compilediag_harness.torch_internals import torch_api

# The same without types, which are not known of anything here.
is_kind: Callable[[Any, Any], bool] = issubclass

Structure = tuple[Any, Any, tuple[Any, ...]] | None

_TENSOR, _PLAIN, _UNKNOWN, _SEQUENCE, _MAPPING, _REGISTERED, _WITH_ATTRIBUTES = range(7)

_PLAIN_TYPES = (type(None), str, bytes, numbers.Number, enum.Enum, range, slice, type, type(...))
_PLAIN_OF_TORCH = frozenset(("Size", "dtype", "device", "layout", "memory_format"))


class _Member(NamedTuple):
    """An element, or an attribute, of a container that may have both."""

    is_element: bool
    name: Any

    def __str__(self) -> str:
        return str(self.name)


class _Context:
    """A registered container without its members, with the names of these."""

    __slots__ = ("names", "value")

    def __init__(self, names: tuple[str, ...], value: Any) -> None:
        self.names, self.value = names, value

    def __hash__(self) -> int:
        return hash(self.names)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Context) or self.names != other.names:
            return False
        try:
            return bool(self.value == other.value)
        except Exception:  # of the container's own comparison, as with tensors in it
            return False


def flatten(value: Any) -> tuple[Structure, list[Any]]:
    """Take a value apart: its structure, and its leaves from left to right."""
    leaves: list[Any] = []
    return _append_leaves(value, leaves), leaves


def _append_leaves(value: Any, leaves: list[Any]) -> Structure:
    kind = get_class(value)
    known = _get_kind(kind)
    if known <= _UNKNOWN:
        leaves.append(value)
        return None
    names, parts = _split_parts(value, known)
    return kind, names, tuple([_append_leaves(part, leaves) for part in parts])


def rebuild(value: Any, leaves: Iterator[Any]) -> Any:
    """Rebuild a container like `value` with other leaves, in order. `value` is not changed."""
    kind = get_class(value)
    known = _get_kind(kind)
    if known <= _UNKNOWN:
        return next(leaves)
    names, parts = _split_parts(value, known)
    new_parts = [rebuild(part, leaves) for part in parts]
    if known == _SEQUENCE:
        return kind._make(new_parts) if hasattr(kind, "_make") else kind(new_parts)
    if known == _REGISTERED:
        return torch_api.rebuild_container(value, new_parts, names.value)
    if known == _MAPPING:
        other: Any = {} if kind is dict else copy.copy(value)
        other.update(zip(names, new_parts, strict=True))
        return other
    inside = [part for member, part in zip(names, new_parts, strict=True) if member.is_element]
    if is_a(value, tuple):
        other = kind._make(inside) if hasattr(kind, "_make") else kind(inside)
    else:
        other = copy.copy(value)
    for member, part in zip(names, new_parts, strict=True):
        if not member.is_element:
            object.__setattr__(other, member.name, part)
    for member, part in zip(names, new_parts, strict=True):
        if member.is_element and not is_a(value, tuple):
            other[member.name] = part
    return other


def _split_parts(value: Any, known: int) -> tuple[Any, Any]:
    """Split a container into the names of its members, and these."""
    if known == _SEQUENCE:
        return len(value), value
    if known == _MAPPING:
        return tuple(value), value.values()
    if known == _REGISTERED:
        names, parts, context = torch_api.get_members(value)
        return _Context(names, context), parts
    parts: Any = ()
    if is_a(value, (tuple, list)):
        parts = zip(getattr(value, "_fields", range(len(value))), value, strict=False)
    elif is_a(value, MutableMapping):
        parts = ((name, value[name]) for name in tuple(value))
    members = {_Member(True, name): part for name, part in parts}
    inside = getattr(value, "__dict__", {})
    fields = getattr(get_class(value), "__dataclass_fields__", {})
    for name in dict.fromkeys((*fields, *inside)):
        # The dict below a UserDict is what its elements are in.
        below = name == "data" and is_a(value, collections.UserDict)
        if not below and (name in inside or hasattr(value, name)):
            members[_Member(False, name)] = inside[name] if name in inside else getattr(value, name)
    return tuple(members), members.values()


def list_paths(structure: Structure, prefix: str = "") -> list[str]:
    """List the path of each leaf: "batch.obs", "0.logits"; "" when the whole value is a leaf."""
    if structure is None:
        return [prefix]
    kind, names, children = structure
    if is_a(names, int):
        names = getattr(kind, "_fields", range(names))
    elif is_a(names, _Context):
        names = names.names
    return [
        path
        for name, child in zip(names, children, strict=True)
        for path in list_paths(child, f"{prefix}.{name}" if prefix else str(name))
    ]


def is_plain(leaf: Any) -> bool:
    """True if a leaf is a value without anything in it: a number, a text, a dtype..."""
    if is_a(leaf, (set, frozenset)):
        return all(map(is_plain, leaf))
    return is_plain_type(get_class(leaf))


def is_plain_type(kind: type) -> bool:
    """True if instances are such values."""
    return _get_kind(kind) == _PLAIN


def is_rebuilt_by_others(structure: Structure) -> bool:
    """True if there are containers in it that code other than Python's own puts together."""
    if structure is None:
        return False
    kind, _, children = structure
    by_others = _get_kind(kind) in (_REGISTERED, _WITH_ATTRIBUTES)
    return by_others or any(map(is_rebuilt_by_others, children))


def _get_kind(kind: Any) -> int:
    known = _determine_kind(kind)
    # What was unknown may have been registered since.
    return _REGISTERED if known == _UNKNOWN and torch_api.is_registered(kind) else known


@functools.lru_cache(512)
def _determine_kind(kind: Any) -> int:
    # A named tuple has no attributes besides its fields.
    is_named_tuple = is_kind(kind, tuple) and hasattr(kind, "_make") and not kind.__dictoffset__
    if kind in (tuple, list) or is_named_tuple:
        return _SEQUENCE
    if kind in (dict, collections.OrderedDict, collections.defaultdict):
        return _MAPPING
    # torch.Size, a tuple of a type of its own, holds plain numbers: no leaves to be padded.
    if kind.__module__ == "torch" and kind.__name__ in _PLAIN_OF_TORCH:
        return _PLAIN
    if torch_api.is_registered(kind):
        return _REGISTERED
    if is_kind(kind, _PLAIN_TYPES):
        return _PLAIN
    composed = is_kind(kind, (tuple, list, MutableMapping)) or kind is types.SimpleNamespace
    if composed or hasattr(kind, "__dataclass_fields__"):
        return _WITH_ATTRIBUTES
    return _TENSOR if hasattr(kind, "untyped_storage") else _UNKNOWN
