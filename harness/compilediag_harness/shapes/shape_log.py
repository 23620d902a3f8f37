"""Tells every session what `FixedShape`s did: their calls in batches, the rest at once."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from compilediag_harness.session import Session
from compilediag_harness.wire import Event, FixedShapeUsed, Location

BATCH_S = 0.25
"""Calls are written when the last writing is older than this, in seconds..."""

BATCH_SIZES = 512
"""... or when so many different sizes are not written."""

Sizes = tuple[int, ...]


class Declared(NamedTuple):
    """A `FixedShape`, as it was made."""

    number: int
    function: Location
    axes: tuple[str, ...]
    buckets: tuple[Sizes, ...]
    priced: bool = False
    """The sizes were chosen, or large batches are split, by a cost that the program gave."""


class _Writer:
    """What one session has not been told yet."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.discard()

    def discard(self) -> None:
        """Drops what is not written: this process is a fork."""
        self._lock = threading.RLock()
        self._declared: dict[int, Declared] = {}
        self._counts: dict[tuple[int, Sizes, Sizes], int] = {}
        self._written = 0.0

    def add(self, of: Declared, sizes: Sizes, run: Sizes) -> None:
        key = (of.number, sizes, run)
        with self._lock:
            self._declared[of.number] = of
            self._counts[key] = self._counts.get(key, 0) + 1
            at = time.monotonic()
            if at - self._written < BATCH_S and len(self._counts) < BATCH_SIZES:
                return
        self.flush(at)

    def flush(self, at: float) -> None:
        with self._lock:
            counts, self._counts, self._written = self._counts, {}, at
        of_each: dict[int, list[tuple[Sizes, Sizes, int]]] = {}
        for (number, sizes, run), count in counts.items():
            of_each.setdefault(number, []).append((sizes, run, count))
        for number, rows in of_each.items():
            of = self._declared[number]
            self.session.emit(
                FixedShapeUsed(
                    self.session.at(at),
                    number,
                    of.function,
                    of.axes,
                    of.buckets,
                    sizes=tuple(sizes for sizes, _, _ in rows),
                    run=tuple(run for _, run, _ in rows),
                    counts=tuple(count for _, _, count in rows),
                    priced=of.priced,
                )
            )


writers: tuple[_Writer, ...] = ()
"""One per session; without any, nothing is told."""

_follows_forks = False


def called(of: Declared, sizes: Sizes, run: Sizes) -> None:
    """A call with `sizes` rows ran at `run`."""
    for writer in writers:
        writer.add(of, sizes, run)


def tell(event_at: Callable[[float, int], Event]) -> None:
    """Tells every session of an event, made of its time and its step."""
    for writer in writers:
        session = writer.session
        session.emit(event_at(session.now(), session.step))


def install(session: Session) -> None:
    """Starts telling `session`."""
    global writers, _follows_forks
    if not _follows_forks and hasattr(os, "register_at_fork"):
        _follows_forks = True
        os.register_at_fork(after_in_child=_forked)
    writers = (*writers, _Writer(session))


def _forked() -> None:
    for writer in writers:
        writer.discard()


def finish(session: Session) -> None:
    """Writes what is not written yet."""
    for writer in writers:
        if writer.session is session:
            writer.flush(time.monotonic())


def uninstall(session: Session) -> None:
    """Stops telling `session`; call `finish` before."""
    global writers
    writers = tuple(writer for writer in writers if writer.session is not session)
