"""What of a value is compared and shown, without running code of the program: a number as it is, a
tensor by its metadata, a container by its length and keys, anything else by its identity.

No object of the program is kept: what it drops is gone.
"""

from __future__ import annotations

import enum
import types
from collections import deque
from itertools import islice
from typing import Any

from compilediag_harness.collectors.witness.paths import MISSING, class_of
from compilediag_harness.torch_internals import torch_guards
from compilediag_harness.wire import clip

_ATOMS = frozenset({bool, int, float, complex, str, bytes, type(None)})
_MAX_TEXT, _MAX_KEYS, _MAX_ITEMS = 256, 64, 16
_SHOWN_CHARS = 120

_dict: Any = dict
_containers: tuple[Any, ...] = (list, tuple, set, frozenset, deque)

Look = tuple[Any, ...]
"""One look at a value: its type first; equal looks are of a value that did not change."""

ABSENT: Look = (None,)


def look_at(value: Any) -> Look:
    """What is compared of a value."""
    if value is MISSING:
        return ABSENT
    kind = class_of(value)
    if kind in _ATOMS:
        return _atom(kind, value)
    if torch_guards.is_tensor_type(kind):
        return (kind, *torch_guards.tensor_metadata(value))
    if issubclass(kind, _dict):
        keys = islice(_dict.keys(value), _MAX_KEYS)
        named = tuple(key for key in keys if class_of(key) in (str, int))
        return (kind, id(value), _dict.__len__(value), named)
    if kind is tuple and len(value) <= _MAX_ITEMS and _ATOMS.issuperset(map(type, value)):
        return (kind, tuple(_atom(class_of(item), item) for item in value))
    if kind is types.MappingProxyType:  # of a class, made anew each time it is read
        return (kind, len(value))
    for base in _containers:
        if issubclass(kind, base):
            return (kind, id(value), base.__len__(value))
    if issubclass(kind, enum.Enum):
        return (kind, id(value), str(object.__getattribute__(value, "_name_")))
    if kind is types.FunctionType or kind is types.MethodType:
        # A bound method is made anew each time it is read.
        function = value.__func__ if kind is types.MethodType else value
        return (kind, id(function), getattr(function, "__qualname__", ""))
    return (class_of(value), id(value))


def _atom(kind: type[Any], value: Any) -> Look:
    if kind in (str, bytes) and len(value) > _MAX_TEXT:
        return (kind, len(value), hash(value))
    return (kind, value)


def text_of(look: Look) -> str:
    """A look as a person would compare it with another, bounded."""
    kind, *facts = look
    if kind is None:
        return "absent"
    if kind in _ATOMS:
        if len(facts) == 1:
            return clip(repr(facts[0]), _SHOWN_CHARS)
        return f"{kind.__name__} of {facts[0]} characters"
    if torch_guards.is_tensor_type(kind):
        return _tensor_text(kind, facts)
    if kind is tuple and len(facts) == 1:
        return clip(repr(tuple(atom[1] for atom in facts[0])), _SHOWN_CHARS)
    if len(facts) >= 2 and type(facts[1]) is int:
        noun = "key" if issubclass(kind, dict) else "item"
        return f"{facts[1]} {noun}" if facts[1] == 1 else f"{facts[1]} {noun}s"
    if issubclass(kind, enum.Enum):
        return f"{kind.__name__}.{facts[1]}"
    if len(facts) >= 2:
        return clip(str(facts[1]), _SHOWN_CHARS)
    return f"{kind.__name__} object"


def _tensor_text(kind: type[Any], facts: list[Any]) -> str:
    if len(facts) < 4:
        return f"{kind.__name__}{', requires_grad' if facts[0] else ''}"
    requires_grad, dtype, shape, device = facts[:4]
    parts = [f"Tensor {list(shape)} {dtype}"]
    parts += [str(device)] if str(device) != "cpu" else []
    parts += ["requires_grad"] if requires_grad else []
    return ", ".join(parts)


def differ(old: Look, new: Look, aspect: str | None) -> bool:
    """Whether two looks differ in what a guard is about: "key NAME" of a dict, "length" of a
    container, "presence", "requires_grad", "dtype", "shape" or "device" of a tensor; None: in
    anything."""
    if aspect is None:
        return old != new
    return _aspect(old, aspect) != _aspect(new, aspect)


_TENSOR_FACTS = {"requires_grad": 1, "dtype": 2, "shape": 3, "device": 4, "stride": 5}


def _aspect(look: Look, aspect: str) -> Any:
    kind = look[0]
    if aspect == "presence":
        return kind is not None
    if kind is None:
        return MISSING
    if aspect.startswith("key "):
        return issubclass(kind, dict) and aspect[4:] in map(repr, look[3])
    if aspect == "length":
        return look[2] if len(look) > 2 else MISSING
    at = _TENSOR_FACTS.get(aspect, 0)
    return look[at] if torch_guards.is_tensor_type(kind) and at < len(look) else kind
