"""Tells every session which groups of periodic work there are, and in which steps they fired.

Firings are written in batches, with their times: the step a firing belongs to is only final when
it is known where steps ended.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import Protocol

from compilediag_harness.base.session import Session
from compilediag_harness.wire import CadenceAsked, CadenceDeclared, CadenceFired, clip

BATCH_S = 0.25
"""Firings are written when the last writing is older than this, in seconds."""

BATCH_FIRINGS = 512
"""... or when there are so many."""

NAME_LIMIT = 200
"""Longest name, in characters."""

GROUP_LIMIT = 256
"""Most groups a session is told of: a program that makes up names must not fill its journal."""

listening = False
"""A session is there: `Cadence.due` asks before it calls anything."""


class Group(Protocol):
    """A group as the program holds it."""

    every: int
    offset: int
    own_every: int


_groups: weakref.WeakValueDictionary[str, Group] = weakref.WeakValueDictionary()
"""The groups that exist, by name: sessions that come later are told of them."""

_monotonic = time.monotonic


class _Writer:
    """The firings of one session that are not written yet."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._lock = threading.Lock()
        self._rows: list[tuple[str, float, int]] = []
        self._written = 0.0
        self._told: dict[str, tuple[int, int, int]] = {}
        self._asked: set[str] = set()

    def declare(self, name: str, group: Group) -> None:
        """Tells of a group, unless it is known as it is."""
        values = group.every, group.offset, group.own_every
        known = self._told.get(name)
        if known != values and (known is not None or len(self._told) < GROUP_LIMIT):
            self._told[name] = values
            session = self.session
            session.emit(CadenceDeclared(session.now(), session.step, name, *values))

    def ask(self, name: str, number: int, at: float) -> None:
        """Tells of the first question only, also where the program makes a group in every step."""
        if name in self._told and name not in self._asked:
            self._asked.add(name)
            session = self.session
            session.emit(CadenceAsked(session.at(at), session.step, name, number))

    def add(self, name: str, at: float) -> None:
        with self._lock:
            self._rows.append((name, at, self.session.step))
            if at - self._written < BATCH_S and len(self._rows) < BATCH_FIRINGS:
                return
            rows, self._rows, self._written = self._rows, [], at
        self._emit(rows)

    def flush(self) -> None:
        with self._lock:
            rows, self._rows = self._rows, []
        self._emit(rows)

    def discard(self) -> None:
        """This process is a fork: what is not written belongs to the parent."""
        self._lock = threading.Lock()  # a thread that is not here may have held it
        self._rows = []

    def _emit(self, rows: list[tuple[str, float, int]]) -> None:
        if not rows:
            return
        session = self.session
        names = tuple(dict.fromkeys(name for name, _, _ in rows))
        places = {name: place for place, name in enumerate(names)}
        session.emit(
            CadenceFired(
                t=session.at(rows[-1][1]),
                names=names,
                name=tuple(places[name] for name, _, _ in rows),
                at=tuple(session.at(at) for _, at, _ in rows),
                steps=tuple(step for _, _, step in rows),
            )
        )


_writers: tuple[_Writer, ...] = ()


def declared(name: str, group: Group) -> None:
    """A group was made. One of the same name takes the place of the older."""
    name = clip(str(name), NAME_LIMIT)
    _groups[name] = group
    for writer in _writers:
        writer.declare(name, group)


def asked(name: str, number: int) -> None:
    """A group was asked for the first time; `number` is the step as the program counts."""
    at, name = _monotonic(), clip(str(name), NAME_LIMIT)
    for writer in _writers:
        writer.ask(name, int(number), at)


def fired(name: str) -> None:
    """The group `name` is due now."""
    at, name = _monotonic(), clip(str(name), NAME_LIMIT)
    for writer in _writers:
        writer.add(name, at)


def install(session: Session) -> None:
    """Starts telling `session`, first of all groups there are; a second call changes nothing."""
    global _writers, listening
    if any(writer.session is session for writer in _writers):
        return
    writer = _Writer(session)
    for name, group in list(_groups.items()):
        writer.declare(name, group)
    _writers = (*_writers, writer)
    listening = True


def finish(session: Session) -> None:
    """Writes what is not written yet."""
    for writer in _writers:
        if writer.session is session:
            writer.flush()


def uninstall(session: Session) -> None:
    """Stops telling `session`; call `finish` before."""
    global _writers, listening
    _writers = tuple(writer for writer in _writers if writer.session is not session)
    listening = bool(_writers)


def forked() -> None:
    """This process is a fork."""
    for writer in _writers:
        writer.discard()
