"""What one subject (spans, tracked runs, fixed shapes) has not written yet, kept by session.

Several sessions may be installed at once (`watch()` inside a supervised run), and each receives
every event. A subject derives a `SessionSink` for what it batches and keeps one `SessionSinks`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from compilediag_harness.base.session import Session
from compilediag_harness.wire import Event

BATCH_S = 0.25
"""A batch is written when the last one is older than this, in seconds."""

BATCH_ROWS = 512
"""... or when it holds so many rows."""


class SessionSink:
    """What one session has not received yet. Its `lock` is reentrant, because a signal handler of
    the program may call us while we hold it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.discard()

    def discard(self) -> None:
        """Drops what is not written: this process is a fork, and that belongs to the parent."""
        self.lock = threading.RLock()  # new: a thread that is not here may have held the old one
        self.written = 0.0
        """When the last batch was written, by `time.monotonic()`."""

    def due(self, at: float, rows: int) -> bool:
        """Whether a batch of so many rows should be written."""
        return at - self.written >= BATCH_S or rows >= BATCH_ROWS

    def finish(self) -> None:
        """Writes what is not written yet."""


Sink = TypeVar("Sink", bound=SessionSink)


class SessionSinks(Generic[Sink]):
    """The sinks of one subject, one a session."""

    def __init__(self, make: Callable[[Session], Sink]) -> None:
        self._make = make
        self.all: tuple[Sink, ...] = ()
        """Empty without a session; replaced, never changed, so that any thread may read it."""
        _discards.append(self.discard)

    def install(self, session: Session) -> None:
        """Adds a sink for `session`, unless it has one."""
        if not any(sink.session is session for sink in self.all):
            self.all = (*self.all, self._make(session))

    def emit(self, event_at: Callable[[float, int], Event]) -> None:
        """Emits to every session one event, made from its time and its step."""
        for sink in self.all:
            session = sink.session
            session.emit(event_at(session.now(), session.step))

    def finish(self, session: Session) -> None:
        """Writes what `session` has not received yet."""
        for sink in self.all:
            if sink.session is session:
                sink.finish()

    def uninstall(self, session: Session) -> None:
        """Removes the sink of `session`; call `finish` before."""
        self.all = tuple(sink for sink in self.all if sink.session is not session)

    def discard(self) -> None:
        """Drops what is not written, of every session."""
        for sink in self.all:
            sink.discard()


_discards: list[Callable[[], None]] = []
"""`discard` of every subject; subjects are modules and never go."""


def _forked() -> None:
    for discard in _discards:
        discard()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
