"""Device time of steps and their phases, by events on the stream; nothing ever waits for them.

An event is recorded where a step ends and where forward and backward begin and end. Events are read
some steps later, when the device says that they are over; those it never says so of are dropped and
counted. Without a device there is no event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from compilediag_harness.base.session import Session
from compilediag_harness.base.step_phases import BACKWARD, FORWARD
from compilediag_harness.torch_internals import torch_api
from compilediag_harness.wire import DeviceStepsTimed

DEPTH = 64
"""Most steps that wait for the device; the oldest of more is dropped."""

BATCH = 64
"""Steps in one record."""


class Event(Protocol):
    """What is used of `torch.cuda.Event(enable_timing=True)`."""

    def record(self) -> None:
        """Marks the place that the stream has come to."""
        ...

    def query(self) -> bool:
        """Whether the device has passed it; does not wait."""
        ...

    def elapsed_time(self, end_event: Event, /) -> float:
        """Milliseconds to a later event; both must be over."""
        ...


class _Step:
    """The events of one step."""

    __slots__ = ("began", "ended", "number", "phases")

    def __init__(self, began: Event) -> None:
        self.began = began
        self.ended: Event | None = None
        self.number = 0
        self.phases: list[tuple[int, Event, Event | None]] = []


class DeviceClock:
    """The device times of one session's steps."""

    def __init__(
        self, session: Session, make: Callable[[], Event], usable: Callable[[], bool]
    ) -> None:
        """`make` makes an event; `usable` says whether one may be recorded now: the device is in
        use, and no CUDA graph is being captured."""
        self.session = session
        self.dropped = 0
        self._make = make
        self._usable = usable
        self._current: _Step | None = None
        self._waiting: deque[_Step] = deque()
        self._rows: list[tuple[int, float, float | None, float | None]] = []

    def enter(self, phase: int) -> None:
        """A phase begins; only forward and backward are timed."""
        if phase not in (FORWARD, BACKWARD):
            return
        if self._current is not None and self._usable():
            self._current.phases.append((phase, self._mark(), None))

    def leave(self, phase: int) -> None:
        """A phase ends."""
        step = self._current
        if step is None or not step.phases or not self._usable():
            return
        open_phase, began, ended = step.phases[-1]
        if open_phase == phase and ended is None:
            step.phases[-1] = (phase, began, self._mark())

    def step_ended(self, number: int, _compiled: bool) -> None:
        """A step ends, and with it the next one begins."""
        if not self._usable():
            self._current = None
            return
        mark = self._mark()
        if self._current is not None:
            self._current.number, self._current.ended = number, mark
            self._waiting.append(self._current)
        self._current = _Step(mark)
        self._read()
        if len(self._rows) >= BATCH:
            self.write()

    def restart(self) -> None:
        """The step in progress is not timed: where it began is not known."""
        self._current = None

    def finish(self) -> None:
        """Writes what the device has finished; what it has not is dropped, not waited for."""
        self._read()
        self.dropped += len(self._waiting)
        self._waiting.clear()
        self.write()

    def write(self) -> None:
        """Writes the steps whose times are known."""
        if not self._rows and not self.dropped:
            return
        rows, self._rows = self._rows, []
        self.session.emit(
            DeviceStepsTimed(
                t=self.session.now(),
                steps=tuple(row[0] for row in rows),
                step_s=tuple(row[1] for row in rows),
                forward_s=tuple(row[2] for row in rows),
                backward_s=tuple(row[3] for row in rows),
                dropped=self.dropped,
            )
        )
        self.dropped = 0

    def _mark(self) -> Event:
        event = self._make()
        event.record()
        return event

    def _read(self) -> None:
        """Reads the steps that are over, in order: events of one stream end in order."""
        waiting = self._waiting
        while waiting:
            step = waiting[0]
            ended = step.ended
            if ended is not None and ended.query():
                waiting.popleft()
                self._rows.append(
                    (
                        step.number,
                        step.began.elapsed_time(ended) / 1e3,
                        _seconds(step, FORWARD),
                        _seconds(step, BACKWARD),
                    )
                )
            elif len(waiting) > DEPTH:
                waiting.popleft()
                self.dropped += 1
            else:
                return


def watch(session: Session, torch_module: Any) -> DeviceClock | None:
    """The clock of the CUDA device, told of every step of `session`; None where torch knows none.
    Initialises nothing: until the program uses the device no event is recorded."""
    if getattr(torch_module.version, "cuda", None) is None:
        return None
    clock = DeviceClock(
        session,
        lambda: torch_api.cuda_event(torch_module),
        lambda: torch_api.cuda_in_use(torch_module),
    )
    session.step_listeners.append(clock.step_ended)
    return clock


def forget(session: Session) -> None:
    """Stops telling the session's clock of steps."""
    for listener in list(session.step_listeners):
        if isinstance(getattr(listener, "__self__", None), DeviceClock):
            session.step_listeners.remove(listener)


def _seconds(step: _Step, phase: int) -> float | None:
    """Device seconds of one phase; None where it was not seen, or not to its end."""
    pairs = [(began, ended) for one, began, ended in step.phases if one == phase]
    if not pairs:
        return None
    total = 0.0
    for began, ended in pairs:
        if ended is None or not (began.query() and ended.query()):
            return None
        total += began.elapsed_time(ended) / 1e3
    return total
