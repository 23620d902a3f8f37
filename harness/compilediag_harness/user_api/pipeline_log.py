"""Tells every session what producer-consumer loops did, in batches."""

from __future__ import annotations

import os
import threading
import time
from typing import NamedTuple

from compilediag_harness.base.session import Session
from compilediag_harness.wire import PipelineWorked

BATCH_S = 0.25
"""What is not written yet is written when the last writing is older than this, in seconds."""

BATCH_ROWS = 512
"""... or when there is so much."""


class Row(NamedTuple):
    """A finished stretch; times are `time.monotonic()` readings."""

    stage: str
    began: float
    ended: float
    samples: int
    thread: int
    slot: int


class Size(NamedTuple):
    """The pool's size at a moment."""

    at: float
    size: int


class Loop(NamedTuple):
    """A producer-consumer loop, as it was declared."""

    name: str
    slots: int | None
    """Inference calls that can be in progress at a time; None: as seen."""


class _Writer:
    """What one session has not been told yet, of all loops."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.discard()

    def discard(self) -> None:
        """Drops what is not written: this process is a fork."""
        # Reentrant: a signal handler of the program may measure too. And new, because a thread that
        # is not here may have held it.
        self._lock = threading.RLock()
        self._rows: list[tuple[Loop, Row | Size]] = []
        self._written = 0.0

    def add(self, of: Loop, row: Row | Size, at: float) -> None:
        with self._lock:
            self._rows.append((of, row))
            if at - self._written < BATCH_S and len(self._rows) < BATCH_ROWS:
                return
        self.flush(at)

    def flush(self, at: float) -> None:
        with self._lock:
            rows, self._rows, self._written = self._rows, [], at
        of_each: dict[Loop, list[Row | Size]] = {}
        for loop, row in rows:
            of_each.setdefault(loop, []).append(row)
        for loop, its in of_each.items():
            self.session.emit(_batch(self.session, at, loop, its))


def _batch(session: Session, at: float, of: Loop, rows: list[Row | Size]) -> PipelineWorked:
    work = [row for row in rows if isinstance(row, Row)]
    sizes = [row for row in rows if isinstance(row, Size)]
    return PipelineWorked(
        t=session.at(at),
        name=of.name,
        slots=of.slots,
        stages=tuple(row.stage for row in work),
        starts=tuple(session.at(row.began) for row in work),
        walls=tuple(row.ended - row.began for row in work),
        samples=tuple(row.samples for row in work),
        threads=tuple(row.thread for row in work),
        infer_slots=tuple(row.slot for row in work),
        pool_at=tuple(session.at(size.at) for size in sizes),
        pool_sizes=tuple(size.size for size in sizes),
    )


writers: tuple[_Writer, ...] = ()
"""One per session; without any, nothing is measured."""

_follows_forks = False


def tell(of: Loop, row: Row | Size, at: float) -> None:
    """Tells every session of a finished stretch or of a size of the pool."""
    for writer in writers:
        writer.add(of, row, at)


def install(session: Session) -> None:
    """Starts measuring for `session`."""
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
    """Stops measuring for `session`; call `finish` before."""
    global writers
    writers = tuple(writer for writer in writers if writer.session is not session)
