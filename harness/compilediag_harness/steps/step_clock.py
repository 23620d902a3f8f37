"""Clock of steps: measures and samples them and writes them in batches.

Where a step ends is decided in `step_detection.py`.

A step is sampled, or only its end is recorded (`StepSampling`). It runs from the end of the one
before it; the first begins at the first sign of work. A boundary may be tentative: it cuts the
times, but the step's number does not advance until it is committed.

Invariant: session.step == first + len(records) - tentative + len(session.noted).
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Generator
from itertools import groupby
from typing import Any

from compilediag_harness.base.session import BATCH_ROWS, BATCH_S, Session
from compilediag_harness.steps.phases import NOTHING, PhasesInProgress, Seconds
from compilediag_harness.user_api.spans import DATA_WAIT, NAMES, SPANS
from compilediag_harness.wire import StepsEnded

_ALWAYS_MEASURED = (DATA_WAIT, SPANS)
"""Phases that are measured of every step. The others cost more than a brief step should pay."""

Record = tuple[float, float, Seconds, bool]
"""End (`time.monotonic()`), wall seconds, seconds by phase, and whether the step was sampled."""


class StepClock:
    """Times of one session's steps; every method takes `time.monotonic()` readings, in seconds."""

    def __init__(self, session: Session, now: float) -> None:
        self.session = session
        self.records: list[Record] = []
        """Ended steps that are not written yet, then the tentative ones."""
        self.tentative = 0
        self.began: float | None = None
        """When the step in progress began; None until the first one does."""
        self.phases = PhasesInProgress()
        self.thread = threading.get_ident()
        """The thread whose phases are measured: that which ends the steps."""
        self.sampling = True
        """Everything is measured; else the ends of steps, and the phases `_ALWAYS_MEASURED`."""
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
    def is_own_thread(self) -> bool:
        """This thread is the one whose phases are measured."""
        return threading.get_ident() == self.thread

    def begin(self, at: float) -> None:
        """Begin the first step at `at`, where work was seen, unless it has begun."""
        if self.began is None:
            self.began = at
            self.phases.restart(at)

    def enter(self, phase: int, at: float) -> None:
        """Begin a phase."""
        if self.began is None:
            self.begin(at)
        self.phases.open(phase, at)

    # --- boundaries ---

    def cut_step(self, at: float) -> None:
        """Put a tentative boundary at `at`."""
        if not self.is_own_thread:  # what is open are phases of the thread that ended steps before
            self.thread = threading.get_ident()
            self.phases.forget_open()
        began = self._attached if self.began is None else self.began
        self.records.append((at, at - began, self.phases.cut_step(at), self.whole))
        self.tentative += 1
        self.began = at
        self.whole = self.sampling

    def stop_sampling(self) -> None:
        """Record only the ends of steps from now on, and what is measured of every step."""
        self.sampling = self.whole = False

    def add_unsampled(self, ends: list[float]) -> None:
        """Add unsampled steps that have ended; no listener is called."""
        if not ends:
            return
        self.session.step += len(ends)
        self.cut_step(ends[0])  # what is measured of every step is in the first: the rest is idle
        self.tentative -= 1
        began = ends[0]
        for at in ends[1:]:
            self.records.append((at, at - began, NOTHING, False))
            began = at
        self.began = began

    def commit(self) -> None:
        """Make every tentative boundary the end of a step."""
        session = self.session
        while self.tentative:
            self.tentative -= 1
            self._compiled = self._compiled or session.compiled_in_step
            session.end_step()

    def forget(self) -> None:
        """Forget the tentative boundaries: their times go back to the step in progress."""
        self._unwind(self.tentative)
        self.tentative = 0

    def withdraw_steps(self) -> None:
        """Withdraw the steps that are not written yet: numbers go back to the last written."""
        self._unwind(len(self.records))
        self.tentative = 0
        self.session.step = self._first

    def discard(self) -> None:
        """Drop what is not written, and what is in progress: this process is a fork."""
        self.records.clear()
        self.phases.forget_open()
        self.tentative = 0
        self._first = self.session.step

    def join(self) -> None:
        """Join the tentative interval to the step before it, or, when that is written already, to
        the step in progress."""
        if len(self.records) <= self.tentative:
            self.forget()
            return
        while self.tentative:
            self.tentative -= 1
            # Wall and phases of both add up, so that phases stay within the wall time.
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

    def is_due(self, at: float) -> bool:
        """True if a batch should be written: enough time or steps, or something compiled."""
        certain = len(self.records) - self.tentative
        return self._compiled or at - self._written >= BATCH_S or certain >= BATCH_ROWS

    def write(self, at: float, source: str, hold: int = 0) -> None:
        """Write the ended steps but the last `hold`, which may still change."""
        count = len(self.records) - self.tentative - hold
        if count <= 0:
            return
        session = self.session
        # Each record has steps that were all sampled, or none of them.
        for sampled, group in groupby(self.records[:count], key=lambda record: record[3]):
            ends, walls, seconds, _ = zip(*group, strict=True)
            columns = zip(NAMES, zip(*seconds, strict=True), strict=True)
            phases: dict[str, Any] = {
                name: column
                if self.phases.seen[phase] and (sampled or phase in _ALWAYS_MEASURED)
                else ()
                for phase, (name, column) in enumerate(columns)
            }
            session.emit(
                StepsEnded(
                    t=session.convert_time(at),
                    first=self._first,
                    source=source,
                    ends=tuple(session.convert_time(end) for end in ends),
                    walls=walls if sampled else (),
                    began=None if sampled else session.convert_time(ends[0] - walls[0]),
                    measuring_s=self.measuring_s,
                    noted=not sampled,
                    **phases,
                )
            )
            self._first += len(ends)
            self.measuring_s = 0.0
        del self.records[:count]
        self._written = at
        self._compiled = False


EVERY_STEP_VARIABLE = "COMPILEDIAG_EVERY_STEP"
"""Environment variable: sample every step, whatever that costs."""

BRIEF_S = 0.03
"""A step shorter than this is brief: sampling would cost it half a percent, or more."""

FIRST_STEPS = 256
"""So many steps are sampled at the beginning..."""

SAMPLED_STEPS = 4
"""... and so many after each run of unsampled ones."""

UNSAMPLED_S = 0.5
"""A run of unsampled steps ends with the first that ends after so many seconds..."""

UNSAMPLED_STEPS = 16_384
"""... or after so many: bounds the memory."""

RETRY_STEPS = 64
"""So many steps decide whether steps are brief; then, if they are not, so many more."""


class StepSampling:
    """Decision which steps of one session are sampled. `pause(by_calls)` makes the hooks of steps
    report nothing but the ends of steps, `resume` makes them report everything again."""

    def __init__(
        self, clock: StepClock, pause: Callable[[bool], bool], resume: Callable[[], None]
    ) -> None:
        self.key = 0
        """Key of the mark that ends the unsampled steps; 0 while steps are sampled."""
        self._clock = clock
        self._session = clock.session
        # Reentrant: a signal handler of the program may mark a step meanwhile.
        self._lock = threading.RLock()
        self._pause = pause
        self._resume = resume
        self._source = ""
        self._by_calls = False
        self._until = 0.0
        self._next = self._session.step + FIRST_STEPS - RETRY_STEPS
        self._since: tuple[int, float] | None = None
        """Step and time from which on it is measured whether steps are brief."""

    def pause_if_brief(self, key: int, source: str, at: float, *, by_calls: bool = False) -> None:
        """Pause sampling after the end of a step, or of a call in it, if steps are brief and may go
        unsampled. `key` is of the mark that alone ends steps, 0 where there is none."""
        session = self._session
        step = session.step
        if step < self._next:
            return
        if self._since is None or EVERY_STEP_VARIABLE in os.environ:
            self._measure_from(step, at)
            return
        if step < session.watched_until or session.compiled_in_step:
            return
        first, began = self._since
        if step <= first or at - began >= BRIEF_S * (step - first):
            self._measure_from(step, at)
        elif key and not self._clock.tentative and not self._clock.phases.has_open:
            with self._lock:
                if self._pause(by_calls):
                    self.key, self._source, self._by_calls = key, source, by_calls
                    self._until = at + UNSAMPLED_S
                    self._clock.stop_sampling()

    def _measure_from(self, step: int, at: float) -> None:
        self._since = step, at
        self._next = step + RETRY_STEPS

    def record_end(self, key: int, at: float) -> bool:
        """Record the end of an unsampled step. False where that is not all there is to do."""
        clock, session = self._clock, self._session
        # Invariant: no lock before the block below: every unsampled step pays for what comes first.
        # `deque.append` is atomic.
        if key != self.key or threading.get_ident() != clock.thread:
            return False
        ends = session.noted
        ends.append(at)
        if at < self._until and not session.compiled_in_step and len(ends) < UNSAMPLED_STEPS:
            return True
        with self._catch_faults():
            if self.key:
                # The last end is treated as that of a sampled step: listeners are called.
                started = time.monotonic()
                last = ends.pop()
                self._fold()
                clock.cut_step(last)
                clock.commit()
                self._sample_again(last)
                # The call that begins a step was not reported: it is not sampled from its begin.
                clock.whole = not self._by_calls
                clock.write(last, self._source)
                clock.measuring_s = time.monotonic() - started
                session.collector_s += clock.measuring_s
        return True

    def fold(self) -> None:
        """Hand the recorded ends to the clock: something is about to join the step in progress."""
        with self._catch_faults():
            self._fold()

    def stop(self) -> None:
        """Sample steps again: something unusual marks steps, or a session comes or goes. The one in
        progress is not sampled, as it was not from its begin."""
        with self._catch_faults():
            if self.key:
                self._fold()
                self._sample_again(self._clock.began or 0.0)

    def handle_fork(self) -> None:
        """Sample again in this process, which is a fork."""
        self._lock = threading.RLock()  # a thread that is not here may have held it
        self.stop()

    @contextlib.contextmanager
    def _catch_faults(self) -> Generator[None]:
        """Catch faults of ours in the program's step: after one every step is sampled, for good."""
        with self._lock:
            try:
                yield
            except Exception as error:
                self._session.record_fault("brief steps", error)
                self._next = sys.maxsize
                self.key = 0
                self._clock.sampling = True
                self._resume()

    def _fold(self) -> None:
        ends = self._session.noted
        self._clock.add_unsampled([ends.popleft() for _ in range(len(ends))])

    def _sample_again(self, at: float) -> None:
        self.key = 0
        step = self._session.step
        self._since = step + self._by_calls, at
        self._next = step + SAMPLED_STEPS + self._by_calls
        self._clock.sampling = True
        self._resume()
