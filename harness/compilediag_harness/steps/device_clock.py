"""Device time of steps and their phases, by events on the stream; nothing ever waits for them.

An event is recorded where a step ends and where forward and backward begin and end. Events are read
some steps later, when the device reports that they are over; those that never are over are dropped
and counted. Without a device there is no event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from compilediag_harness.base.session import Session
from compilediag_harness.torch_internals import torch_api
from compilediag_harness.user_api.spans import BACKWARD, FORWARD
from compilediag_harness.wire import DeviceStepsTimed

DEPTH = 64
"""Most steps that wait for the device; the oldest of more is dropped."""

BATCH = 64
"""Steps in one record."""

Mark = Any
"""A `torch.cuda.Event(enable_timing=True)`: `record` it on the stream, `query` whether the device
has passed it, which waits for nothing, and take the `elapsed_time` to a later one when both are."""


class _DeviceStep:
    """The events of one step."""

    def __init__(self, began: Mark) -> None:
        self.began = began
        self.ended: Mark = None
        self.index = 0
        self.phases: list[tuple[int, Mark, Mark]] = []


class DeviceClock:
    """The device times of one session's steps."""

    def __init__(
        self, session: Session, make: Callable[[], Mark], usable: Callable[[], bool]
    ) -> None:
        """`make` creates an event; `usable` returns whether one may be recorded now: the device is
        in use, and no CUDA graph is being captured."""
        self.session = session
        self.dropped = 0
        self._make = make
        self._usable = usable
        self._current: _DeviceStep | None = None
        self._waiting: deque[_DeviceStep] = deque()
        self._rows: list[tuple[int, float, float | None, float | None]] = []

    def enter(self, phase: int) -> None:
        """A phase begins; only forward and backward are timed."""
        if self._current is not None and phase in (FORWARD, BACKWARD) and self._usable():
            self._current.phases.append((phase, self._mark(), None))

    def leave(self, phase: int) -> None:
        """A phase ends."""
        step = self._current
        if step is None or not step.phases or not self._usable():
            return
        open_phase, began, ended = step.phases[-1]
        if open_phase == phase and ended is None:
            step.phases[-1] = (phase, began, self._mark())

    def step_ended(self, step: int, _compiled: bool) -> None:
        """A step ends, and with it the next one begins."""
        if not self._usable():
            self._current = None
            return
        mark = self._mark()
        if self._current is not None:
            self._current.index, self._current.ended = step, mark
            self._waiting.append(self._current)
        self._current = _DeviceStep(mark)
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
        columns = zip(*self._rows, strict=True) if self._rows else ((),) * 4
        self.session.emit(DeviceStepsTimed(self.session.now(), *columns, dropped=self.dropped))
        self._rows, self.dropped = [], 0

    def _mark(self) -> Mark:
        event = self._make()
        event.record()
        return event

    def _read(self) -> None:
        """Reads the steps that are over, in order: events of one stream end in order."""
        while self._waiting:
            step = self._waiting[0]
            if step.ended.query():
                self._rows.append(
                    (
                        step.index,
                        step.began.elapsed_time(step.ended) / 1e3,
                        _seconds(step, FORWARD),
                        _seconds(step, BACKWARD),
                    )
                )
            elif len(self._waiting) > DEPTH:
                self.dropped += 1
            else:
                return
            self._waiting.popleft()


def watch(session: Session, torch_module: Any) -> DeviceClock | None:
    """The clock of the CUDA device, called at every step of `session`; None where torch is built
    without CUDA. Initialises nothing: until the program uses the device no event is recorded."""
    if torch_module.version.cuda is None:
        return None
    clock = DeviceClock(
        session,
        lambda: torch_module.cuda.Event(enable_timing=True),
        lambda: torch_api.cuda_in_use(torch_module),
    )
    session.step_listeners.append(clock.step_ended)
    return clock


def _seconds(step: _DeviceStep, phase: int) -> float | None:
    """Device seconds of one phase; None where there was none, or one without an end."""
    marks = [(began, ended) for one, began, ended in step.phases if one == phase]
    if not marks or any(ended is None or not began.query() for began, ended in marks):
        return None
    if not all(ended.query() for _, ended in marks):
        return None
    return sum(began.elapsed_time(ended) for began, ended in marks) / 1e3
