"""The finished spans of one session that are not written yet, as the columns of their record.

What spans have in common is stored once, and each costs one pass of a loop without a call: a
program may end half a million spans a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from compilediag_harness.base.session import Session
from compilediag_harness.base.session_sinks import BATCH_ROWS, SessionSink
from compilediag_harness.wire import SpansEnded

MAIN_THREAD = 0
"""The main thread in `SpansEnded.threads`; the others are there by their identifiers."""


class Handle(Protocol):
    """Whose span it was."""

    name: str
    phase: int
    """Which phase of the step the span is, by its name."""


Row = tuple[int, int, Handle, int, int]
"""Begin and end (`time.monotonic_ns()`), handle, depth, thread of a span that has ended."""


class SpanBatches(SessionSink):
    """Of one session. The caller holds the lock of the spans."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._origin_ns = -round(session.at(0.0) * 1e9)

    def discard(self) -> None:
        super().discard()
        self._index: dict[tuple[str, int, int, str], int] = {}
        """Name, depth, thread and phase of each kind of span, with its index among the kinds."""
        self._kinds: list[int] = []
        self._steps: list[int] = []
        self._starts: list[int] = []
        self._walls: list[int] = []

    def add(self, rows: Sequence[Row], phases: Sequence[str]) -> None:
        """Takes spans that ended in the step in progress, with the phase each of them was in."""
        index_of, origin = self._index, self._origin_ns
        kinds, starts, walls = self._kinds, self._starts, self._walls
        for (began, ended, handle, depth, thread), phase in zip(rows, phases, strict=True):
            key = handle.name, depth, thread, phase
            index = index_of.get(key)
            if index is None:
                index = index_of[key] = len(index_of)
            kinds.append(index)
            starts.append(began - origin)
            walls.append(ended - began)
        self._steps += [self.session.step] * len(rows)

    def write(self, at_ns: int, main_thread: int | None) -> None:
        """Writes what is there, in records of at most `BATCH_ROWS`."""
        kinds, steps, starts, walls = self._kinds, self._steps, self._starts, self._walls
        keys = list(self._index)
        self.discard()
        for first in range(0, len(kinds), BATCH_ROWS):
            part = slice(first, first + BATCH_ROWS)
            self.session.emit(
                SpansEnded(
                    t=(at_ns - self._origin_ns) * 1e-9,
                    names=tuple(name for name, _, _, _ in keys),
                    depths=tuple(depth for _, depth, _, _ in keys),
                    threads=tuple(
                        MAIN_THREAD if thread == main_thread else thread for _, _, thread, _ in keys
                    ),
                    phases=tuple(phase for _, _, _, phase in keys),
                    kinds=tuple(kinds[part]),
                    steps=tuple(steps[part]),
                    starts_ns=tuple(starts[part]),
                    walls_ns=tuple(walls[part]),
                )
            )
