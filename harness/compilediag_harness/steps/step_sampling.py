"""Brief steps: most of them are only noted, and a few in a row are watched now and then.

Watching a step costs it 70 to 240 microseconds: phases, the calls of compiled callables,
synchronisations. Of a loop of brief steps that one thing ends, always the same, only the moments
are kept at which they end, for half a second; then some steps are watched again. A step in which
something compiled is followed by watched ones.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

from compilediag_harness.steps.step_clock import StepClock

EVERY_STEP_VARIABLE = "COMPILEDIAG_EVERY_STEP"
"""Environment variable: watch every step, whatever that costs."""

BRIEF_S = 0.03
"""A step shorter than this is brief: watching it would cost it half a percent, or more."""

FIRST_STEPS = 256
"""So many steps are watched before the first is only noted..."""

WATCHED_STEPS = 4
"""... and so many after each stretch of noted ones."""

NOTED_S = 0.5
"""A stretch of noted steps ends with the first that ends after so many seconds..."""

NOTED_STEPS = 16_384
"""... or when so many are noted: bounds the memory."""

RETRY_STEPS = 64
"""So many steps tell whether steps are brief; then, if they are not, so many more."""


class StepSampling:
    """Which steps of one session are watched. `pause(by_calls)` makes the hooks of steps tell
    nothing but the ends of steps, `resume` makes them tell everything again."""

    def __init__(
        self, clock: StepClock, pause: Callable[[bool], bool], resume: Callable[[], None]
    ) -> None:
        self.key = 0
        """What ends the noted steps; 0 while steps are watched."""
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
        """A watched step has ended, or a call in it: the next ones are only noted, if they may be.
        `key` is what alone ends steps, 0 where there is no such thing."""
        session = self._session
        step = session.step
        if step < self._next:
            return
        if self._since is None or EVERY_STEP_VARIABLE in os.environ:
            self._look_again(step, at)
            return
        if step < session.watched_until or session.compiled_in_step:
            return
        first, began = self._since
        if step <= first or at - began >= BRIEF_S * (step - first):
            self._look_again(step, at)
        elif key and not self._clock.tentative and not self._clock.phases.nested:
            with self._lock:
                if self._pause(by_calls):
                    self._begin(key, source, at, by_calls)

    def _look_again(self, step: int, at: float) -> None:
        self._since = step, at
        self._next = step + RETRY_STEPS

    def _begin(self, key: int, source: str, at: float, by_calls: bool) -> None:
        self.key, self._source, self._by_calls = key, source, by_calls
        self._until = at + NOTED_S
        self._clock.leave_alone()

    def took(self, key: int, at: float) -> bool:
        """A step ended: notes it. False where that is not all there is to do."""
        session = self._session
        if key != self.key or threading.get_ident() != self._clock.thread:
            return False
        noted = session.noted
        noted.append(at)
        if at >= self._until or session.compiled_in_step or len(noted) >= NOTED_STEPS:
            with self._lock:
                if self.key:
                    self._shielded(self._watch)
        return True

    def fold(self) -> None:
        """The clock takes over the ends that are noted: something of the step in progress is about
        to be told to it."""
        with self._lock:
            self._shielded(self._fold)

    def stop(self) -> None:
        """Something unusual marks steps, or a session comes or goes: steps are watched again. The
        one in progress is not, as it was not from its begin."""
        with self._lock:
            if self.key:
                self._shielded(self._stop)

    def forked(self) -> None:
        """This process is a fork."""
        self._lock = threading.RLock()  # a thread that is not here may have held it
        self.stop()

    def _shielded(self, action: Callable[[], None]) -> None:
        """Runs in the program's step: a fault of ours is told and ends the noting, for good."""
        try:
            action()
        except Exception as error:
            self._session.fault("brief steps", error)
            self._next = sys.maxsize
            self.key = 0
            self._clock.watching = True
            self._resume()

    def _fold(self) -> None:
        noted = self._session.noted
        self._clock.note([noted.popleft() for _ in range(len(noted))])

    def _stop(self) -> None:
        self._fold()
        self._watched_again(self._clock.began or 0.0)

    def _watch(self) -> None:
        """The end that was noted last is looked at as that of a watched step is."""
        clock, session = self._clock, self._session
        started = time.monotonic()
        last = session.noted.pop()
        self._fold()
        clock.cut(last)
        clock.commit()
        self._watched_again(last)
        # A call that begins a step is not told of any more: the step is not watched from its begin.
        clock.whole = not self._by_calls
        clock.write(last, self._source)
        clock.measuring_s = time.monotonic() - started
        session.charge(clock.measuring_s)

    def _watched_again(self, at: float) -> None:
        self.key = 0
        step = self._session.step
        self._since = step + self._by_calls, at
        self._next = step + WATCHED_STEPS + self._by_calls
        self._clock.watching = True
        self._resume()
