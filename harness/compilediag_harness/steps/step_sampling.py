"""Brief steps: a few in a row are sampled now and then; of the others only the ends are recorded.

Sampling a step costs it 70 to 240 microseconds: phases, the calls of compiled callables,
synchronisations. Of a loop of brief steps that one thing ends, always the same, only the moments
are kept at which they end, for half a second; then some steps are sampled again. A step in which
something compiled is followed by sampled ones.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

from compilediag_harness.steps.step_clock import StepClock

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
    """Which steps of one session are sampled. `pause(by_calls)` makes the hooks of steps report
    nothing but the ends of steps, `resume` makes them report everything again."""

    def __init__(
        self, clock: StepClock, pause: Callable[[bool], bool], resume: Callable[[], None]
    ) -> None:
        self.key = 0
        """What ends the unsampled steps; 0 while steps are sampled."""
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

    def ended(self, key: int, source: str, at: float, *, by_calls: bool = False) -> None:
        """A sampled step has ended, or a call in it: the next ones go unsampled, if they may.
        `key` is what alone ends steps, 0 where there is no such thing."""
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
        elif key and not self._clock.tentative and not self._clock.phases.nested:
            with self._lock:
                if self._pause(by_calls):
                    self.key, self._source, self._by_calls = key, source, by_calls
                    self._until = at + UNSAMPLED_S
                    self._clock.stop_sampling()

    def _measure_from(self, step: int, at: float) -> None:
        self._since = step, at
        self._next = step + RETRY_STEPS

    def record(self, key: int, at: float) -> bool:
        """Records the end of an unsampled step. False where that is not all there is to do."""
        session = self._session
        if key != self.key or threading.get_ident() != self._clock.thread:
            return False
        ends = session.noted
        ends.append(at)
        if at >= self._until or session.compiled_in_step or len(ends) >= UNSAMPLED_STEPS:
            with self._lock:
                if self.key:
                    self._shielded(self._sample_last)
        return True

    def fold(self) -> None:
        """The clock takes over the recorded ends: something of the step in progress is about to be
        added to it."""
        with self._lock:
            self._shielded(self._fold)

    def stop(self) -> None:
        """Something unusual marks steps, or a session comes or goes: steps are sampled again. The
        one in progress is not, as it was not from its begin."""
        with self._lock:
            if self.key:
                self._shielded(self._stop)

    def forked(self) -> None:
        """This process is a fork."""
        self._lock = threading.RLock()  # a thread that is not here may have held it
        self.stop()

    def _shielded(self, action: Callable[[], None]) -> None:
        """Runs in the program's step: after a fault of ours every step is sampled, for good."""
        try:
            action()
        except Exception as error:
            self._session.fault("brief steps", error)
            self._next = sys.maxsize
            self.key = 0
            self._clock.sampling = True
            self._resume()

    def _fold(self) -> None:
        ends = self._session.noted
        self._clock.add_unsampled([ends.popleft() for _ in range(len(ends))])

    def _stop(self) -> None:
        self._fold()
        self._sample_again(self._clock.began or 0.0)

    def _sample_last(self) -> None:
        """The last recorded end is treated as that of a sampled step: listeners are called."""
        clock, session = self._clock, self._session
        started = time.monotonic()
        last = session.noted.pop()
        self._fold()
        clock.cut(last)
        clock.commit()
        self._sample_again(last)
        # The call that begins a step was not reported: the step is not sampled from its begin.
        clock.whole = not self._by_calls
        clock.write(last, self._source)
        clock.measuring_s = time.monotonic() - started
        session.charge(clock.measuring_s)

    def _sample_again(self, at: float) -> None:
        self.key = 0
        step = self._session.step
        self._since = step + self._by_calls, at
        self._next = step + SAMPLED_STEPS + self._by_calls
        self._clock.sampling = True
        self._resume()
