"""What one attached process shares: where events go, the clock, the current step, our own cost.

Nothing here may ever raise into the user's code: faults of ours are counted and, once per source,
written to the journal.
"""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from compilediag_harness.wire import Event, FaultOccurred, clip


@dataclass(frozen=True, slots=True)
class WitnessPlan:
    """What of a run is followed to see who changes what is guarded."""

    steps: frozenset[int] = frozenset()
    """Steps in which an earlier run recompiled: only they and those before are followed. Empty: all
    are."""
    sources: frozenset[str] = frozenset()
    """Guards that were false in it. Empty: every guarded value is watched."""

    def follows(self, step: int) -> bool:
        """Whether what comes after a compiled call in a step may change what a recompile is for."""
        return not self.steps or step in self.steps or step + 1 in self.steps


class TrialPart(Protocol):
    """A trial that this process is part of, from when the program imports torch."""

    def torch_imported(self, session: Session, torch: Any) -> None:
        """Changes what the plan says, and looks at the answers from now on."""
        ...

    def finish(self) -> None:
        """Emits what is held when the process ends."""
        ...

    def uninstall(self) -> None:
        """Looks at nothing any more."""
        ...


WATCHED_AFTER_COMPILE = 8
"""Steps that are watched after one in which something compiled."""


class Session:
    """One per process. `sink` receives every event and may drop it, but must not block."""

    def __init__(self, sink: Callable[[Event], None], origin: float | None = None) -> None:
        """`origin`: reading of `time.monotonic()` when the process attached; now, if not given."""
        self._sink = sink
        self._origin = time.monotonic() if origin is None else origin
        self._faults: set[str] = set()
        self.noted: deque[float] = deque()
        """Ends of steps that the step clock has not taken over yet, in `time.monotonic()`."""
        self.watched_until = 0
        """The steps before this one are watched, not only noted: for listeners that need their
        ends."""
        self._step = 0
        self.epoch = 0
        """How often `torch._dynamo.reset()` was called."""
        self.collector_s = 0.0
        """Seconds our own code has spent, as far as it was measured."""
        self.records_dropped = 0
        self.records_left_out: dict[str, int] = {}
        """By kind, those that the sink counts and does not write."""
        self.text_log: str | None = None
        """File for torch's compile logs; None where nothing is kept (`watch()`)."""
        self.trace_folder: str | None = None
        """Where torch's trace lies if the run switched it on; None where nothing is kept."""
        self.witness_plan: WitnessPlan | None = None
        """What is followed to see who changes what is guarded; None: nothing."""
        self.trial: TrialPart | None = None
        self.failure: str | None = None
        """Text of the exception that ends the process; known only when it ends."""
        self.compiled_in_step = False
        """Something compiled since the step began: set by the compile collector."""
        self.step_listeners: list[Callable[[int, bool], None]] = []
        """Called after each watched step, and after the last of several that were only noted, with
        its number and whether something compiled in it."""

    @property
    def step(self) -> int:
        """The step in progress: `steps.py` advances it, everyone else reads it."""
        return self._step + len(self.noted)

    @step.setter
    def step(self, index: int) -> None:
        self._step = index - len(self.noted)

    def now(self) -> float:
        """Seconds since this process attached, monotonic."""
        return time.monotonic() - self._origin

    def at(self, monotonic: float) -> float:
        """A reading of `time.monotonic()` as seconds since this process attached."""
        return monotonic - self._origin

    def emit(self, event: Event) -> None:
        """Hands one event to the sink; a failing sink costs the event, never the user's run."""
        try:
            self._sink(event)
        except Exception:
            self.records_dropped += 1

    def end_step(self) -> None:
        """Closes the step in progress and opens the next: `steps.py` alone calls this."""
        finished, compiled = self.step, self.compiled_in_step
        self.step, self.compiled_in_step = finished + 1, False
        if compiled:
            self.watched_until = finished + 1 + WATCHED_AFTER_COMPILE
        for listener in self.step_listeners:
            try:
                listener(finished, compiled)
            except Exception as error:
                self.fault("step listener", error)

    def charge(self, seconds: float) -> None:
        """Adds to the measured cost of our own code."""
        self.collector_s += seconds

    def fault(self, where: str, error: BaseException) -> None:
        """Counts a fault of ours; the first of each source is recorded."""
        if where in self._faults:
            return
        self._faults.add(where)
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        self.emit(FaultOccurred(self.now(), where, clip(text, 4096)))
