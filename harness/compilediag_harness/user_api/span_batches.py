"""The finished spans of one session that are not written yet, as the columns of their record.

What spans have in common is said once, and what is done for each is one pass without a call of
ours: a loop may end half a million spans a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from compilediag_harness.base.session import Session
from compilediag_harness.wire import SpansEnded

BATCH_SPANS = 512
"""Most spans of one record."""

MAIN_THREAD = 0
"""What `SpansEnded.threads` says of the main thread; others say their identifier."""


class Handle(Protocol):
    """Whose span it was."""

    name: str
    phase: int
    """Which phase of the step the span is, by its name."""


Row = tuple[int, int, Handle, int, int]
"""Begin and end (`time.monotonic_ns()`), handle, depth, thread of a span that has ended."""


class SpanBatches:
    """Of one session. Whoever calls holds the lock of the spans."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._origin_ns = -round(session.at(0.0) * 1e9)
        self.discard()

    def discard(self) -> None:
        """Drops what is not written."""
        self._places: dict[tuple[str, int, int, str], int] = {}
        """Name, depth, thread and phase of each kind of span, with its place among the kinds."""
        self._kinds: list[int] = []
        self._steps: list[int] = []
        self._starts: list[int] = []
        self._walls: list[int] = []

    def add(self, rows: Sequence[Row], phases: Sequence[str]) -> None:
        """Takes spans that ended in the step in progress, with the phase each of them was in."""
        places, origin = self._places, self._origin_ns
        kinds, starts, walls = self._kinds, self._starts, self._walls
        for (began, ended, handle, depth, thread), phase in zip(rows, phases, strict=True):
            key = handle.name, depth, thread, phase
            place = places.get(key)
            if place is None:
                place = places[key] = len(places)
            kinds.append(place)
            starts.append(began - origin)
            walls.append(ended - began)
        self._steps += [self.session.step] * len(rows)

    def write(self, at_ns: int, main_thread: int | None) -> None:
        """Tells the session what is there, in records of at most `BATCH_SPANS`."""
        kinds, steps, starts, walls = self._kinds, self._steps, self._starts, self._walls
        told = list(self._places)
        self.discard()
        for first in range(0, len(kinds), BATCH_SPANS):
            part = slice(first, first + BATCH_SPANS)
            self.session.emit(
                SpansEnded(
                    t=(at_ns - self._origin_ns) / 1e9,
                    names=tuple(name for name, _, _, _ in told),
                    depths=tuple(depth for _, depth, _, _ in told),
                    threads=tuple(
                        MAIN_THREAD if thread == main_thread else thread for _, _, thread, _ in told
                    ),
                    phases=tuple(phase for _, _, _, phase in told),
                    kinds=tuple(kinds[part]),
                    steps=tuple(steps[part]),
                    starts_ns=tuple(starts[part]),
                    walls_ns=tuple(walls[part]),
                )
            )
