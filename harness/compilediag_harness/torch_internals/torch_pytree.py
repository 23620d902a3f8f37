"""Containers that torch, a library or the program registered with torch's own pytree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from compilediag_harness.torch_internals.torch_names import loaded, lookup


class Members(NamedTuple):
    """A registered container taken apart by its own functions."""

    names: tuple[str, ...]
    values: tuple[Any, ...]
    context: Any
    """What the container is made of besides its members."""


def is_registered(kind: type) -> bool:
    """Whether instances of exactly this class can be taken apart."""
    return _node(kind) is not None


def members_of(value: Any) -> Members:
    """The members of an instance of a registered class."""
    node = _node(_type_of(value))
    with_keys = getattr(node, "flatten_with_keys_fn", None)
    if with_keys is None:
        values, context = node.flatten_fn(value)
        values = tuple(values)
        return Members(tuple(map(str, range(len(values)))), values, context)
    pairs, context = with_keys(value)
    pairs = tuple(pairs)
    return Members(tuple(_name(key) for key, _ in pairs), tuple(item for _, item in pairs), context)


def remade(value: Any, values: list[Any], context: Any) -> Any:
    """A container of the class of `value` with other members."""
    made = _node(_type_of(value)).unflatten_fn(values, context)
    # A TensorDict guesses its batch size where members have another than that in the context, and
    # takes a feature for one more dimension of it where the numbers happen to be equal.
    rank = len(getattr(value, "batch_size", ()))
    shapes = [item.shape for item in values if hasattr(item, "shape")]
    if rank and shapes:
        made.batch_size = shapes[0][:rank]
    return made


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """A value with another leaf for each of its own. Raises AttributeError if torch has none."""
    tree: Any = loaded("torch.utils._pytree")
    return tree.tree_map(function, value)


_type_of: Callable[[Any], Any] = type


def _node(kind: type) -> Any:
    nodes: Any = lookup(loaded("torch.utils._pytree"), "SUPPORTED_NODES") or {}
    node: Any = nodes.get(kind)
    complete = all(hasattr(node, name) for name in ("flatten_fn", "unflatten_fn"))
    return node if complete else None


def _name(key: Any) -> str:
    """Of a key of torch's: that of a mapping, an attribute or a position."""
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
