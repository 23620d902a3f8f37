"""Tells every session what `FixedShape`s did: their calls in batches, the rest at once."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from compilediag_harness.base.session import Session
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
    dims: tuple[tuple[str, ...], ...] = ()
    """Of each axis, the dimensions of arguments: "obs:0"."""


class _Inside(threading.local):
    """How many calls of `FixedShape`s this thread is in."""

    depth = 0


inside = _Inside()
"""What is called in there gets padded tensors."""


class _Writer:
    """What one session has not been told yet."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.discard()

    def discard(self) -> None:
        """Drops what is not written: this process is a fork."""
        self._lock = threading.RLock()
        self._declared: dict[int, Declared] = {}
        self._counts: dict[tuple[int, Sizes, Sizes, Sizes], list[int]] = {}
        self._written = 0.0

    def add(self, of: Declared, sizes: Sizes, run: Sizes, asked: Sizes, in_graphs: bool) -> None:
        key = (of.number, sizes, run, asked)
        with self._lock:
            self._declared[of.number] = of
            counts = self._counts.setdefault(key, [0, 0])
            counts[0] += 1
            counts[1] += in_graphs
            at = time.monotonic()
            if at - self._written < BATCH_S and len(self._counts) < BATCH_SIZES:
                return
        self.flush(at)

    def flush(self, at: float) -> None:
        with self._lock:
            counts, self._counts, self._written = self._counts, {}, at
        of_each: dict[int, list[tuple[Sizes, Sizes, Sizes, int, int]]] = {}
        for (number, sizes, run, asked), (count, in_graphs) in counts.items():
            of_each.setdefault(number, []).append((sizes, run, asked, count, in_graphs))
        for number, rows in of_each.items():
            of = self._declared[number]
            self.session.emit(
                FixedShapeUsed(
                    self.session.at(at),
                    number,
                    of.function,
                    of.axes,
                    of.buckets,
                    sizes=tuple(row[0] for row in rows),
                    run=tuple(row[1] for row in rows),
                    counts=tuple(row[3] for row in rows),
                    priced=of.priced,
                    asked=tuple(row[2] for row in rows),
                    in_graphs=tuple(row[4] for row in rows),
                    dims=of.dims,
                )
            )


writers: tuple[_Writer, ...] = ()
"""One per session; without any, nothing is told."""

_follows_forks = False


def called(of: Declared, sizes: Sizes, run: Sizes, asked: Sizes, *, in_graphs: bool) -> None:
    """A call with `sizes` rows ran at `run`, the first of a batch of `asked`, or () for the later
    ones; `in_graphs`: in a CUDA graph."""
    for writer in writers:
        writer.add(of, sizes, run, asked, in_graphs)


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
