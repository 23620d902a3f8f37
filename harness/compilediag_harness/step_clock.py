"""Measures steps and writes them in batches: where a step ends is decided by `step_source.py`.

A step runs from the end of the one before it, so steps and the time between them leave no gap; the
first begins at the first sign of work (a batch, a compiled call, a backward, an optimizer). A
boundary may be tentative: it cuts the times, but the step's number does not advance until it is
committed.

Invariant: session.step == first + len(records) - tentative.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from compilediag_harness.device_clock import DeviceClock
from compilediag_harness.phases import BACKWARD, FORWARD, NAMES, OPTIMIZER, Phases, Seconds
from compilediag_harness.session import Session
from compilediag_harness.wire import StepsEnded

BATCH_S = 0.25
"""A batch is written when the last one is older than this, in seconds."""

BATCH_STEPS = 512
"""... or when it holds so many steps."""

EVERY_STEP_VARIABLE = "COMPILEDIAG_EVERY_STEP"
"""Environment variable: measure every phase of every step, whatever that costs."""

BRIEF_S = 0.008
"""A step shorter than this is brief: telling its forward and backward would cost it a percent."""

TOLD_STEPS = 256
"""Of brief steps, the phases that cost most are told for so many, and not after them."""

_DEAR = (FORWARD, BACKWARD)

Record = tuple[float, float, Seconds]
"""End (`time.monotonic()`), wall seconds, and seconds by phase."""


class StepClock:
    """The times of one session's steps; every method takes `time.monotonic()` readings."""

    def __init__(self, session: Session, now: float) -> None:
        self.session = session
        self.records: list[Record] = []
        """Ended steps that are not written yet, then the tentative ones."""
        self.tentative = 0
        self.began: float | None = None
        """When the step in progress began; None until the first one does."""
        self.phases = Phases()
        self.partial: dict[str, str] = {}
        """Phases that are measured in part, each with what is missing."""
        self.device: DeviceClock | None = None
        """Device time beside the host's; None where there is no device."""
        self.thread = threading.get_ident()
        """The thread whose phases are measured: that which ends the steps."""
        self.every_phase = True
        """Forward and backward are measured too: until steps turn out to be brief."""
        self.became_brief: Callable[[], None] | None = None
        """Called once, when they do."""
        self._attached = now
        self._written = now
        self._first = session.step
        self._compiled = False

    # --- phases ---

    @property
    def here(self) -> bool:
        """This thread is the one whose phases are measured."""
        return threading.get_ident() == self.thread

    def begin(self, at: float) -> None:
        """Work was seen at `at`: the first step begins, unless it has."""
        if self.began is None:
            self.began = at
            self.phases.restart(at)

    def enter(self, phase: int, at: float) -> None:
        """A phase of the step begins."""
        if self.began is None:
            self.begin(at)
        self.phases.open(phase, at)
        if self.device is not None:
            self.device.enter(phase)

    def leave(self, phase: int, at: float) -> None:
        """A phase of the step ends."""
        self.phases.close(phase, at)
        if self.device is not None:
            self.device.leave(phase)

    def optimized(self, began: float, ended: float) -> None:
        """An optimizer stepped."""
        self.begin(began)
        self.phases.add(OPTIMIZER, began, ended)

    # --- boundaries ---

    def cut(self, at: float) -> None:
        """Puts a tentative boundary at `at`."""
        if not self.here:
            self.thread = threading.get_ident()
            self.phases.forget_open()
        began = self._attached if self.began is None else self.began
        self.records.append((at, at - began, self.phases.cut(at)))
        self.tentative += 1
        self.began = at

    def commit(self) -> None:
        """Every tentative boundary was the end of a step."""
        session = self.session
        together = self.tentative > 1
        while self.tentative:
            if together and self.device is not None:
                self.device.restart()  # these ends were not marked when they happened
            self.tentative -= 1
            self._compiled = self._compiled or session.compiled_in_step
            session.end_step()

    def forget(self) -> None:
        """No tentative boundary was one: their times go back to the step in progress."""
        self._unwind(self.tentative)
        self.tentative = 0

    def retract(self) -> None:
        """The steps that are not written yet were none: numbers go back to the last written."""
        self._unwind(len(self.records))
        self.tentative = 0
        self.session.step = self._first

    def discard(self) -> None:
        """Drops what is not written, and what is in progress: this process is a fork."""
        self.records.clear()
        self.phases.forget_open()
        self.tentative = 0
        self._first = self.session.step

    def join(self) -> None:
        """The tentative stretch belongs to the step before it, or, when that is written already,
        to the step in progress."""
        if len(self.records) <= self.tentative:
            self.forget()
            return
        while self.tentative:
            self.tentative -= 1
            (end, wall_after, after), (_, wall, before) = self.records.pop(), self.records.pop()
            both = tuple(x + y for x, y in zip(before, after, strict=True))
            self.records.append((end, wall + wall_after, both))  # pyright: ignore[reportArgumentType]

    def _unwind(self, count: int) -> None:
        for _ in range(count):
            end, wall, seconds = self.records.pop()
            self.began = end - wall
            self.phases.give_back(seconds)

    # --- batches ---

    def due(self, at: float) -> bool:
        """Whether a batch should be written: enough time or steps, or something compiled."""
        return (
            self._compiled
            or at - self._written >= BATCH_S
            or len(self.records) - self.tentative >= BATCH_STEPS
        )

    def write(self, at: float, source: str, hold: int = 0) -> None:
        """Writes the ended steps but the last `hold`, which may still change."""
        count = len(self.records) - self.tentative - hold
        if count <= 0:
            return
        ends, walls, seconds = zip(*self.records[:count], strict=True)
        told = {
            name: column if seen else ()
            for name, column, seen in zip(
                NAMES, zip(*seconds, strict=True), self.phases.seen, strict=True
            )
        }
        session = self.session
        brief = self.every_phase and session.step >= TOLD_STEPS and self._is_brief()
        session.emit(
            StepsEnded(
                t=session.at(at),
                first=self._first,
                source=source,
                ends=tuple(session.at(end) for end in ends),
                walls=walls,
                partial=dict(self.partial),
                **told,
            )
        )
        del self.records[:count]
        self._first += count
        self._written = at
        self._compiled = False
        if brief:
            self._leave_out_dear_phases()

    def _is_brief(self) -> bool:
        """Whether the steps that are about to be written are brief, and nothing else was asked."""
        walls = [wall for _, wall, _ in self.records]
        return sum(walls) < BRIEF_S * len(walls) and EVERY_STEP_VARIABLE not in os.environ

    def _leave_out_dear_phases(self) -> None:
        self.every_phase = False
        missing = (
            f"measured up to step {self._first}: steps this short would pay a percent for it "
            f"({EVERY_STEP_VARIABLE}=1 measures all)"
        )
        for phase in _DEAR:
            if self.phases.seen[phase]:
                self.partial[NAMES[phase]] = missing
        self.phases.leave_out(_DEAR)
        if self.became_brief is not None:
            self.became_brief()
