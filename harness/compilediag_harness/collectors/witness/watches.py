"""The values that guards read, as a tree of hops from objects of the program, and how each was last
seen to change. Objects are held weakly: the program may drop them."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from compilediag_harness.collectors.witness.paths import MISSING, Hop, class_of, read
from compilediag_harness.collectors.witness.values import Look, differ, look_at, text_of
from compilediag_harness.wire import Location

_KEPT_CHANGES = 16
"""Of one value: a guard on one key of a dict may be about an earlier one than the last."""


class Seen(NamedTuple):
    """A change that was noticed: between two looks, the second after the line of `stack`."""

    order: int
    """Rises with each change and each compile."""
    old: Look
    new: Look
    stack: tuple[Location, ...]
    """The line after which the value differed, then its callers; empty: not known."""
    in_call: bool
    step: int


class Place:
    """One value, and those that are reached through it."""

    __slots__ = ("changes", "look", "parts")

    def __init__(self, look: Look) -> None:
        self.look = look
        self.parts: dict[Hop, Place] = {}
        self.changes: deque[Seen] | None = None

    def noticed(self, seen: Seen) -> None:
        """Keeps a change."""
        if self.changes is None:
            self.changes = deque(maxlen=_KEPT_CHANGES)
        self.changes.append(seen)

    def last(self, aspect: str | None) -> Seen | None:
        """The last change of what a guard is about."""
        changes = reversed(self.changes or ())
        return next((each for each in changes if differ(each.old, each.new, aspect)), None)


class Root(NamedTuple):
    """An object of the program from which guards read."""

    read: Callable[[], Any]
    """The object; `MISSING` once it is gone."""
    place: Place


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
        """Watches what is reached from an object by hops, and everything on the way."""
        known = self._root_of(root)
        if known is None:
            return
        value, place = root, known.place
        for hop in hops:
            value, part = read(hop, value), place.parts.get(hop)
            if part is None:
                if self.count >= self._most:
                    self.left_out += 1
                    return
                part = place.parts[hop] = Place(look_at(value))
                self.count += 1
            place = part

    def find(self, root: Any, hops: tuple[Hop, ...]) -> Place | None:
        """The watched value at the end of these hops."""
        known = self._roots.get(id(root))
        place = known.place if known is not None and known.read() is root else None
        for hop in hops:
            place = place.parts.get(hop) if place is not None else None
        return place

    def changed(self) -> list[tuple[Place, Look, Look]]:
        """Looks at every value: those that differ from the look before, with both looks."""
        found: list[tuple[Place, Look, Look]] = []
        for key, root in list(self._roots.items()):
            value = root.read()
            if value is MISSING:
                del self._roots[key]
                self.count -= sum(1 for _ in _below(root.place))
            else:
                _look_below(root.place, value, found)
        return found

    def _root_of(self, root: Any) -> Root | None:
        known = self._roots.get(id(root))
        if known is not None and known.read() is root:
            return known
        # The globals of a module, which nothing refers to weakly, live as long as its functions.
        if class_of(root) is dict and "__builtins__" in root:
            made = Root(lambda: root, Place(()))
        else:
            try:
                reference = weakref.ref(root)
            except TypeError:
                return None
            made = Root(lambda: MISSING if (it := reference()) is None else it, Place(()))
        self._roots[id(root)] = made
        return made


def _look_below(place: Place, value: Any, found: list[tuple[Place, Look, Look]]) -> None:
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


def _below(place: Place) -> Iterator[Place]:
    for part in place.parts.values():
        yield part
        yield from _below(part)


def described(seen: Seen) -> tuple[str, str]:
    """The old and the new value as text."""
    return text_of(seen.old), text_of(seen.new)
