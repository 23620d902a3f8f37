"""Session of one attached process: its sink of events, its clock, the current step, our own cost.

Nothing here may ever raise into the user's code: faults of ours are counted and, once per source,
written to the journal.

Several sessions may be installed at once (`watch()` inside a supervised run), and each receives
every event. A module that batches derives a `SessionSink` and has one `SessionSinks`.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from compilediag_harness.base import process_options
from compilediag_harness.base.signal_handlers import is_raised_by_handler
from compilediag_harness.wire import Event, FaultOccurred, clip

Fields = ParamSpec("Fields")


WATCHED_AFTER_COMPILE = 8
"""Steps that are watched after one in which something compiled."""


class Session:
    """Events, clock and step, one per process. `sink` receives every event and may drop it, but
    must not block."""

    def __init__(self, sink: Callable[[Event], None], origin: float | None = None) -> None:
        """`origin`: reading of `time.monotonic()` when the process attached; now, if not given."""
        self._sink = sink
        self._origin = time.monotonic() if origin is None else origin
        self._faults: set[str] = set()
        self.noted: deque[float] = deque()
        """Ends of steps that the step clock has not taken over yet, in `time.monotonic()`."""
        self.watched_until = 0
        """Steps before this one are watched, not only noted: for listeners that need their ends."""
        self._step = 0
        self.epoch = 0
        """How often `torch._dynamo.reset()` was called."""
        self.collector_s = 0.0
        """Seconds our own code has spent, as far as it was measured."""
        self.records_dropped = 0
        self.records_left_out: dict[str, int] = {}
        """By kind, those that the sink counts and does not write."""
        self.text_log: str | None = None
        """File for torch's compile logs; None where no files are written (`watch()`)."""
        self.trace_folder: str | None = None
        """Where torch's trace lies if the run switched it on; None where no files are written."""
        self.trial: Any = None
        """The trial (`trials/trial.py`) that this process is part of; mostly None."""
        self.failure: str | None = None
        """Text of the exception that ends the process; known only when it ends."""
        self.compiled_in_step = False
        """Something compiled since the step began: set by the compile collector."""
        self.step_listeners: list[Callable[[int, bool], None]] = []
        """Called after each watched step, and after the last of several that were only noted, with
        its number and whether something compiled in it."""
        self.options = process_options.read(self.record_fault)

    @property
    def step(self) -> int:
        """The step in progress: `steps.py` advances it, everyone else reads it."""
        return self._step + len(self.noted)

    @step.setter
    def step(self, index: int) -> None:
        self._step = index - len(self.noted)

    def now(self) -> float:
        """Read the seconds since this process attached, monotonic."""
        return time.monotonic() - self._origin

    def convert_time(self, monotonic: float) -> float:
        """Convert a reading of `time.monotonic()` to seconds since this process attached."""
        return monotonic - self._origin

    def emit(self, event: Event) -> None:
        """Hand one event to the sink; a failing sink costs the event, never the user's run."""
        try:
            self._sink(event)
        except Exception as error:
            self.records_dropped += 1
            if is_raised_by_handler(error):
                raise

    def replace_sink(self, sink: Callable[[Event], None]) -> Callable[[Event], None]:
        """Replace what receives every event, for work that is none of the program's; returns what
        received them before."""
        before, self._sink = self._sink, sink
        return before

    def emit_in_step(
        self,
        kind: Callable[Concatenate[float, int, Fields], Event],
        *args: Fields.args,
        **kwargs: Fields.kwargs,
    ) -> None:
        """Emit an event of this moment and of the step in progress, with these other fields."""
        self.emit(kind(self.now(), self.step, *args, **kwargs))

    def end_step(self) -> None:
        """Close the step in progress and open the next: `steps.py` alone calls this."""
        # Invariant: advanced before the listeners are called: what they emit is of the next step.
        finished, compiled = self.step, self.compiled_in_step
        self.step, self.compiled_in_step = finished + 1, False
        if compiled:
            self.watched_until = finished + 1 + WATCHED_AFTER_COMPILE
        for listener in self.step_listeners:
            try:
                listener(finished, compiled)
            except Exception as error:
                self.record_fault("step listener", error)

    @contextlib.contextmanager
    def catch_faults(self, where: str) -> Generator[None]:
        """Catch and record faults in a block of ours within what torch or the program does."""
        try:
            yield
        except Exception as error:
            self.record_fault(where, error)

    @contextlib.contextmanager
    def charge_block(self, where: str) -> Generator[None]:
        """Catch the faults of a block, and add its seconds to those that our own code has spent."""
        started = time.monotonic()
        with self.catch_faults(where):
            yield
        self.collector_s += time.monotonic() - started

    def record_fault(self, where: str, error: BaseException) -> None:
        """Record a fault of ours; of each source `where` only the first.

        Raises:
            BaseException: `error`, where a handler of the program's for a signal has raised it.
        """
        if is_raised_by_handler(error):
            raise error
        # Invariant: `where` is one of a few texts, without ids or paths: the set only grows.
        if where in self._faults:
            return
        self._faults.add(where)
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        self.emit(FaultOccurred(self.now(), where, clip(text, 4096)))


BATCH_S = 0.25
"""A batch is written when the last one is older than this, in seconds."""

BATCH_ROWS = 512
"""... or when it holds so many rows."""


class SessionSink:
    """Batch of what one session has not received yet. Its `lock` is reentrant, because a signal
    handler of the program may call us while we hold it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.discard()

    def discard(self) -> None:
        """Drop what is not written: this process is a fork, and that belongs to the parent."""
        # Invariant: what a subclass adds up is made anew in its `discard`, which `__init__` calls.
        self.lock = threading.RLock()  # new: a thread that is not here may have held the old one
        self.written = 0.0
        """When the last batch was written, by `time.monotonic()`."""

    def is_due(self, at: float, rows: int) -> bool:
        """True if a batch of so many rows should be written."""
        return at - self.written >= BATCH_S or rows >= BATCH_ROWS

    def handle_step_end(self, step: int, compiled: bool) -> None:
        """Write a batch that is due, of a sink whose `written` is by `Session.now`: for
        `Session.step_listeners`."""
        if self.session.now() - self.written >= BATCH_S:
            self.finish()

    def finish(self) -> None:
        """Write what is not written yet."""


Sink = TypeVar("Sink", bound=SessionSink)


class SessionSinks(Generic[Sink]):
    """The sinks of one module, one a session."""

    def __init__(self, make: Callable[[Session], Sink]) -> None:
        self._make = make
        self.all: tuple[Sink, ...] = ()
        """Empty without a session; replaced, never changed, so that any thread may read it."""
        fork_handlers.append(self.discard)

    def install(self, session: Session) -> None:
        """Add a sink for `session`, unless it has one."""
        if not any(sink.session is session for sink in self.all):
            self.all = (*self.all, self._make(session))

    def emit(self, make_event: Callable[[float, int], Event]) -> None:
        """Emit to every session one event, made from its time and its step."""
        for sink in self.all:
            session = sink.session
            session.emit(make_event(session.now(), session.step))

    def finish(self, session: Session) -> None:
        """Write what `session` has not received yet."""
        for sink in self.all:
            if sink.session is session:
                sink.finish()

    def uninstall(self, session: Session) -> None:
        """Remove the sink of `session`; call `finish` before."""
        self.all = tuple(sink for sink in self.all if sink.session is not session)

    def discard(self) -> None:
        for sink in self.all:
            sink.discard()


fork_handlers: list[Callable[[], None]] = []
"""Called in each fork of this process, by modules that are there for ever: what is not written yet
belongs to the parent, and the other threads are not there."""


def _run_fork_handlers() -> None:
    for handler in fork_handlers:
        handler()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_run_fork_handlers)
