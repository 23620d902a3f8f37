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

from compilediag_harness.base.object_graph import MISSING, Hop, get_class, read
from compilediag_harness.torch_internals import torch_guards
from compilediag_harness.wire import Location, clip

_MAX_CHANGES = 16
"""Of one value: a guard on one key of a dict may be about an earlier one than the last."""


class Moment(NamedTuple):
    """A comparison of all values, after which some had changed."""

    order: int
    """Rises with each change and each compile."""
    stack: tuple[Location, ...]
    """The line after which the values differed, then its callers; empty: not known."""
    in_call: bool
    step: int


class SeenChange(NamedTuple):
    """A change that was noticed: between two snapshots, the second of them at a moment."""

    old: Snapshot
    new: Snapshot
    at: Moment


class WatchedValue:
    """One value, and those that are reached through it."""

    __slots__ = ("changes", "parts", "snapshot")

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.parts: dict[Hop, WatchedValue] = {}
        self.changes: deque[SeenChange] | None = None

    def record_change(self, change: SeenChange) -> None:
        if self.changes is None:
            self.changes = deque(maxlen=_MAX_CHANGES)
        self.changes.append(change)

    def find_last_change(self, aspect: str | None) -> SeenChange | None:
        """Find the last change of what a guard is about; None where it did not change."""
        changes = reversed(self.changes or ())
        return next((seen for seen in changes if has_changed(seen.old, seen.new, aspect)), None)


class Root(NamedTuple):
    """An object of the program from which guards read."""

    read: Callable[[], Any]
    """The object; None once it is gone."""
    watched: WatchedValue


class WatchedValues:
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
            is_module = get_class(root) is dict and "__builtins__" in root
            try:
                reference = (lambda: root) if is_module else weakref.ref(root)
            except TypeError:
                return
            if known is not None:  # gone, and its id is used again
                self.count -= sum(1 for _ in _iterate_below(known.watched))
            known = self._roots[id(root)] = Root(reference, WatchedValue(()))
        value, watched = root, known.watched
        for hop in hops:
            value, part = read(hop, value), watched.parts.get(hop)
            if part is None:
                if self.count >= self._most:
                    self.left_out += 1
                    return
                part = watched.parts[hop] = WatchedValue(take_snapshot(value))
                self.count += 1
            watched = part

    def find(self, root: Any, hops: tuple[Hop, ...]) -> WatchedValue | None:
        """Find the watched value that is reached from an object by hops; None where none is."""
        known = self._roots.get(id(root))
        watched = known.watched if known is not None and known.read() is root else None
        for hop in hops:
            watched = watched.parts.get(hop) if watched is not None else None
        return watched

    def collect_changes(self) -> list[tuple[WatchedValue, Snapshot, Snapshot]]:
        """Compare every value: collect those that differ, with the snapshots before and after."""
        changes: list[tuple[WatchedValue, Snapshot, Snapshot]] = []
        for key, root in list(self._roots.items()):
            value = root.read()
            if value is None:
                del self._roots[key]
                self.count -= sum(1 for _ in _iterate_below(root.watched))
            else:
                _compare_below(root.watched, value, changes)
        return changes


def _compare_below(
    watched: WatchedValue, value: Any, changes: list[tuple[WatchedValue, Snapshot, Snapshot]]
) -> None:
    for hop, part in watched.parts.items():
        inner = read(hop, value)
        try:
            snapshot = take_snapshot(inner)
        except Exception:  # another thread changes it just now
            continue
        if snapshot != part.snapshot:
            changes.append((part, part.snapshot, snapshot))
            part.snapshot = snapshot
        if part.parts:
            _compare_below(part, inner, changes)


def _iterate_below(watched: WatchedValue) -> Iterator[WatchedValue]:
    for part in watched.parts.values():
        yield part
        yield from _iterate_below(part)


_ATOMS = frozenset({bool, int, float, complex, str, bytes, type(None)})
_MAX_TEXT, _MAX_KEYS, _MAX_ELEMENTS = 256, 64, 16
_SHOWN_CHARS = 120

_dict: Any = dict
_containers: tuple[Any, ...] = (list, tuple, set, frozenset, deque)

Snapshot = tuple[Any, ...]
"""One look at a value: its type first; equal snapshots are of a value that did not change."""

ABSENT: Snapshot = (None,)


def take_snapshot(value: Any) -> Snapshot:
    """Take what is compared of a value."""
    if value is MISSING:
        return ABSENT
    # Invariant: a value's own methods (`__len__`, `__eq__`, `__hash__`) are never called, here or
    # when snapshots are compared: these hold only types, ids, lengths, names and atoms.
    kind = get_class(value)
    if kind in _ATOMS:
        return _snapshot_atom(kind, value)
    if torch_guards.is_tensor_type(kind):
        return (kind, *torch_guards.read_tensor_metadata(value))
    if issubclass(kind, _dict):
        keys = islice(_dict.keys(value), _MAX_KEYS)
        named = tuple(key for key in keys if get_class(key) in (str, int))
        return (kind, id(value), _dict.__len__(value), named)
    if kind is tuple and len(value) <= _MAX_ELEMENTS and _ATOMS.issuperset(map(type, value)):
        return (kind, tuple(_snapshot_atom(get_class(element), element) for element in value))
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
    return (get_class(value), id(value))


def _snapshot_atom(kind: type[Any], value: Any) -> Snapshot:
    if kind in (str, bytes) and len(value) > _MAX_TEXT:
        return (kind, len(value), hash(value))
    return (kind, value)


def format_snapshot(snapshot: Snapshot) -> str:
    """Format a snapshot as a person would compare it with another, clipped."""
    kind, *facts = snapshot
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


def has_changed(old: Snapshot, new: Snapshot, aspect: str | None) -> bool:
    """True if two snapshots differ in a guard's aspect: "key NAME" of a dict, "length" of a
    container, "presence", "requires_grad", "dtype", "shape" or "device" of a tensor; None: any."""
    if aspect is None:
        return old != new
    return _get_aspect(old, aspect) != _get_aspect(new, aspect)


_TENSOR_FACTS = {"requires_grad": 1, "dtype": 2, "shape": 3, "device": 4, "stride": 5}


def _get_aspect(snapshot: Snapshot, aspect: str) -> Any:
    kind = snapshot[0]
    if aspect == "presence":
        return kind is not None
    if kind is None:
        return MISSING
    if aspect.startswith("key "):
        return issubclass(kind, dict) and aspect[4:] in map(repr, snapshot[3])
    if aspect == "length":
        return snapshot[2] if len(snapshot) > 2 else MISSING
    at = _TENSOR_FACTS.get(aspect, 0)
    return snapshot[at] if torch_guards.is_tensor_type(kind) and at < len(snapshot) else kind
