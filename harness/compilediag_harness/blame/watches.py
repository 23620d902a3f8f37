"""Snapshots of watched values and their comparison, without running code of the program: of a
number as it is, of a tensor its metadata, of a container its length and keys, else the identity.

No object of the program is stored: what it drops is gone.
"""

from __future__ import annotations

import enum
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from compilediag_harness.base.object_graph import MISSING, Hop, class_of, read
from compilediag_harness.torch_internals import torch_guards
from compilediag_harness.wire import Location, clip

_KEPT_CHANGES = 16
"""Of one value: a guard on one key of a dict may be about an earlier one than the last."""


class Moment(NamedTuple):
    """A comparison of all values, after which some had changed."""

    order: int
    """Rises with each change and each compile."""
    stack: tuple[Location, ...]
    """The line after which the values differed, then its callers; empty: not known."""
    in_call: bool
    step: int


class Seen(NamedTuple):
    """A change that was noticed: between two snapshots, the second of them at a moment."""

    old: Look
    new: Look
    at: Moment


class WatchedValue:
    """One value, and those that are reached through it."""

    __slots__ = ("changes", "look", "parts")

    def __init__(self, look: Look) -> None:
        self.look = look
        self.parts: dict[Hop, WatchedValue] = {}
        self.changes: deque[Seen] | None = None

    def noticed(self, seen: Seen) -> None:
        if self.changes is None:
            self.changes = deque(maxlen=_KEPT_CHANGES)
        self.changes.append(seen)

    def last(self, aspect: str | None) -> Seen | None:
        """Find the last change of what a guard is about; None where it did not change."""
        changes = reversed(self.changes or ())
        return next((each for each in changes if differ(each.old, each.new, aspect)), None)


class Root(NamedTuple):
    """An object of the program from which guards read."""

    read: Callable[[], Any]
    """The object; None once it is gone."""
    place: WatchedValue


class Watches:
    """Every watched value of the process."""

    def __init__(self, most: int) -> None:
        """`most`: values that are watched at once."""
        self._roots: dict[int, Root] = {}
        """By identity of the object."""
        self._most = most
        self.count = 0
        self.left_out = 0

    def add(self, root: Any, hops: tuple[Hop, ...]) -> None:
        """Watch what is reached from an object by hops, and everything on the way."""
        known = self._roots.get(id(root))
        if known is None or known.read() is not root:
            # The globals of a module, which nothing refers to weakly, live as long as its
            # functions.
            is_module = class_of(root) is dict and "__builtins__" in root
            try:
                reference = (lambda: root) if is_module else weakref.ref(root)
            except TypeError:
                return
            known = self._roots[id(root)] = Root(reference, WatchedValue(()))
        value, place = root, known.place
        for hop in hops:
            value, part = read(hop, value), place.parts.get(hop)
            if part is None:
                if self.count >= self._most:
                    self.left_out += 1
                    return
                part = place.parts[hop] = WatchedValue(look_at(value))
                self.count += 1
            place = part

    def find(self, root: Any, hops: tuple[Hop, ...]) -> WatchedValue | None:
        """Find the watched value that is reached from an object by hops; None where none is."""
        known = self._roots.get(id(root))
        place = known.place if known is not None and known.read() is root else None
        for hop in hops:
            place = place.parts.get(hop) if place is not None else None
        return place

    def changed(self) -> list[tuple[WatchedValue, Look, Look]]:
        """Compare every value: collect those that differ, with the snapshots before and after."""
        found: list[tuple[WatchedValue, Look, Look]] = []
        for key, root in list(self._roots.items()):
            value = root.read()
            if value is None:
                del self._roots[key]
                self.count -= sum(1 for _ in _below(root.place))
            else:
                _look_below(root.place, value, found)
        return found


def _look_below(
    place: WatchedValue, value: Any, found: list[tuple[WatchedValue, Look, Look]]
) -> None:
    for hop, part in place.parts.items():
        inner = read(hop, value)
        try:
            look = look_at(inner)
        except Exception:  # another thread changes it just now
            continue
        if look != part.look:
            found.append((part, part.look, look))
            part.look = look
        if part.parts:
            _look_below(part, inner, found)


def _below(place: WatchedValue) -> Iterator[WatchedValue]:
    for part in place.parts.values():
        yield part
        yield from _below(part)


_ATOMS = frozenset({bool, int, float, complex, str, bytes, type(None)})
_MAX_TEXT, _MAX_KEYS, _MAX_ITEMS = 256, 64, 16
_SHOWN_CHARS = 120

_dict: Any = dict
_containers: tuple[Any, ...] = (list, tuple, set, frozenset, deque)

Look = tuple[Any, ...]
"""One look at a value: its type first; equal snapshots are of a value that did not change."""

ABSENT: Look = (None,)


def look_at(value: Any) -> Look:
    """Take what is compared of a value."""
    if value is MISSING:
        return ABSENT
    # Invariant: a value's own methods (`__len__`, `__eq__`, `__hash__`) are never called, here or
    # when snapshots are compared: these hold only types, ids, lengths, names and atoms.
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
    """Format a snapshot as a person would compare it with another, clipped."""
    kind, *facts = look
    if kind is None:
        return "absent"
    if kind in _ATOMS:
        if len(facts) == 1:
            return clip(repr(facts[0]), _SHOWN_CHARS)
        return f"{kind.__name__} of {facts[0]} characters"
    if torch_guards.is_tensor_type(kind):
        if len(facts) < 4:
            return f"{kind.__name__}{', requires_grad' if facts[0] else ''}"
        requires_grad, dtype, shape, device = facts[:4]
        parts = [f"Tensor {list(shape)} {dtype}"]
        parts += [str(device)] if str(device) != "cpu" else []
        return ", ".join([*parts, "requires_grad"] if requires_grad else parts)
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


def differ(old: Look, new: Look, aspect: str | None) -> bool:
    """Whether two snapshots differ in what a guard is about: "key NAME" of a dict, "length" of a
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
