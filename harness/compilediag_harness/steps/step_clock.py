"""Measures steps and writes them in batches: where a step ends is decided in `step_detection.py`.

A step is sampled, or only its end is recorded (`step_sampling.py`). It runs from the end of the one
before it, so steps and the time between them leave no gap; the first begins at the first sign of
work (a batch, a compiled call, a backward, an optimizer). A boundary may be tentative: it cuts the
times, but the step's number does not advance until it is committed.

Invariant: session.step == first + len(records) - tentative + len(session.noted).
"""

from __future__ import annotations

import threading
from itertools import groupby
from typing import Any

from compilediag_harness.base.session import Session
from compilediag_harness.steps.device_clock import DeviceClock
from compilediag_harness.steps.phases import NOTHING, Phases, Seconds
from compilediag_harness.user_api.spans import DATA_WAIT, NAMES, OPTIMIZER, SPANS
from compilediag_harness.wire import StepsEnded

BATCH_S = 0.25
"""A batch is written when the last one is older than this, in seconds."""

BATCH_STEPS = 512
"""... or when it holds so many steps."""

_ALWAYS = (DATA_WAIT, SPANS)
"""Phases that are measured of every step. The others cost more than a brief step should pay."""

Record = tuple[float, float, Seconds, bool]
"""End (`time.monotonic()`), wall seconds, seconds by phase, and whether the step was sampled."""


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
        self.sampling = True
        """Everything is measured; else the ends of steps, and the phases `_ALWAYS`."""
        self.whole = True
        """The step in progress was sampled from its begin."""
        self._attached = now
        self._written = now
        self._first = session.step
        self._compiled = False
        self.measuring_s = 0.0
        """Seconds of our own in the step in progress."""

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
        if not self.here:  # what is open are phases of the thread that ended steps before
            self.thread = threading.get_ident()
            self.phases.forget_open()
        began = self._attached if self.began is None else self.began
        self.records.append((at, at - began, self.phases.cut(at), self.whole))
        self.tentative += 1
        self.began = at
        self.whole = self.sampling

    def stop_sampling(self) -> None:
        """From now on only the ends of steps are recorded, and what is measured of every step."""
        self.sampling = self.whole = False
        if self.device is not None:
            self.device.restart()

    def add_unsampled(self, ends: list[float]) -> None:
        """Unsampled steps have ended; no listener is called."""
        if not ends:
            return
        self.session.step += len(ends)
        self.cut(ends[0])  # what is measured of every step is in the first: the rest is idle
        self.tentative -= 1
        began = ends[0]
        for at in ends[1:]:
            self.records.append((at, at - began, NOTHING, False))
            began = at
        self.began = began

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
        """The tentative interval belongs to the step before it, or, when that is written already,
        to the step in progress."""
        if len(self.records) <= self.tentative:
            self.forget()
            return
        while self.tentative:
            self.tentative -= 1
            end, wall_after, after, sampled_after = self.records.pop()
            _, wall, before, sampled = self.records.pop()
            both: Any = tuple(x + y for x, y in zip(before, after, strict=True))
            sampled = sampled and sampled_after
            self.records.append((end, wall + wall_after, both, sampled))

    def _unwind(self, count: int) -> None:
        for _ in range(count):
            end, wall, seconds, sampled = self.records.pop()
            self.began = end - wall
            self.whole = self.whole and sampled
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
        for sampled, group in groupby(self.records[:count], key=lambda record: record[3]):
            self._write(list(group), sampled, at, source)
        del self.records[:count]
        self._written = at
        self._compiled = False

    def _write(self, records: list[Record], sampled: bool, at: float, source: str) -> None:
        """Writes steps that were all sampled, or none of them."""
        ends, walls, seconds, _ = zip(*records, strict=True)
        columns = zip(*seconds, strict=True)
        phases: dict[str, Any] = {
            name: column if self.phases.seen[phase] and (sampled or phase in _ALWAYS) else ()
            for phase, (name, column) in enumerate(zip(NAMES, columns, strict=True))
        }
        session = self.session
        session.emit(
            StepsEnded(
                t=session.at(at),
                first=self._first,
                source=source,
                ends=tuple(session.at(end) for end in ends),
                walls=walls if sampled else (),
                began=None if sampled else session.at(ends[0] - walls[0]),
                measuring_s=self.measuring_s,
                partial=dict(self.partial),
                noted=not sampled,
                **phases,
            )
        )
        self._first += len(records)
        self.measuring_s = 0.0
