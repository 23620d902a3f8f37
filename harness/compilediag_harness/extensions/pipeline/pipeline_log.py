"""What sessions receive of producer-consumer loops, in batches."""

from __future__ import annotations

import time
from typing import NamedTuple

from compilediag_harness.base.session_sinks import SessionSink, SessionSinks
from compilediag_harness.wire import PipelineWorked


class Row(NamedTuple):
    """A finished block of work or waiting; times are `time.monotonic()` readings."""

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
    """Inference calls that can be in progress at a time; None: as observed."""


class _Batches(SessionSink):
    """The rows of all loops that one session has not received yet."""

    def discard(self) -> None:
        super().discard()
        self._rows: list[tuple[Loop, Row | Size]] = []

    def add(self, loop: Loop, row: Row | Size, at: float) -> None:
        with self.lock:
            self._rows.append((loop, row))
            if not self.due(at, len(self._rows)):
                return
        self._write(at)

    def finish(self) -> None:
        self._write(time.monotonic())

    def _write(self, at: float) -> None:
        with self.lock:
            rows, self._rows, self.written = self._rows, [], at
        by_loop: dict[Loop, list[Row | Size]] = {}
        for loop, row in rows:
            by_loop.setdefault(loop, []).append(row)
        for loop, its_rows in by_loop.items():
            self._emit(at, loop, its_rows)

    def _emit(self, at: float, loop: Loop, rows: list[Row | Size]) -> None:
        session = self.session
        work = [row for row in rows if isinstance(row, Row)]
        sizes = [row for row in rows if isinstance(row, Size)]
        session.emit(
            PipelineWorked(
                t=session.at(at),
                name=loop.name,
                slots=loop.slots,
                stages=tuple(row.stage for row in work),
                starts=tuple(session.at(row.began) for row in work),
                walls=tuple(row.ended - row.began for row in work),
                samples=tuple(row.samples for row in work),
                threads=tuple(row.thread for row in work),
                infer_slots=tuple(row.slot for row in work),
                pool_at=tuple(session.at(size.at) for size in sizes),
                pool_sizes=tuple(size.size for size in sizes),
            )
        )


sinks = SessionSinks(_Batches)
"""Without any, nothing is measured."""


def add(loop: Loop, row: Row | Size, at: float) -> None:
    """Gives every session a finished row, or a size of the pool."""
    for sink in sinks.all:
        sink.add(loop, row, at)
