"""Synchronisations by user line: the reads of tensors that make the host wait for the device.

Sampled: a few steps after warm-up, then steps at growing intervals, never one in which something
compiles. In a program that uses no device the same reads are counted as those that would wait if
its tensors were on one. Left out there is what would not: reads by torch's own code (an optimizer
keeps its step count on the host), of what the program has moved to the host, while a batch is
waited for, and of a tensor as an index (batches are put together so).

Invariant: while a compiled callable is called in any thread, `torch.Tensor` is as torch made it, so
that no compile and no guard ever meets a method of ours. Functions behind `torch.compiler.disable`
are no part of a compiled call: nothing is compiled and no guard evaluated until they return.

Other ways to see them change what the program does, or see less (the first is a test of ours):

- A dispatch mode that is active at the first call of a compiled function makes Dynamo skip it for
  good; a function mode is guarded on and makes it recompile. Both run Python for every operation,
  and on the CPU the first sees neither `tolist()` nor `cpu()`.
- `sys.setprofile` takes the place of the user's profiler and does not see `bool(t)`, `float(t)`.
- torch's profiler runs once at a time: a window of ours would be in the way of one of the user's.
- `set_sync_debug_mode("warn")` gives a Python warning each, which a filter turns into an error.
- Functions put in place of the methods stand in tracebacks, and warnings name them.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from compilediag_harness.base.session import Session
from compilediag_harness.collectors import tensor_reads
from compilediag_harness.collectors.sync_sample import ProbeSchedule, SyncSample, SyncSchedule
from compilediag_harness.steps import disabled_calls, steps
from compilediag_harness.torch_internals import torch_calls, torch_disabling, torch_open_calls

QUIET_STEPS = 2
"""Steps without a compile before one is sampled."""

_lock = threading.RLock()
"""Held while the class is changed and while a call begins or ends: the invariant needs both.
Reentrant, as a finaliser or a signal handler may call a compiled callable meanwhile."""

_get_ident = threading.get_ident


class SyncCollector:
    """Samples the steps of one session."""

    def __init__(self, session: Session, torch_module: Any) -> None:
        self._session = session
        self._torch = torch_module
        moved = session.options.sync_steps
        self._schedule = SyncSchedule() if moved is None else ProbeSchedule(*moved)
        self._sample: SyncSample | None = None
        self._placed: SyncSample | None = None
        """The sample that receives reads now; None between its windows."""
        self._calling: set[int] = set()
        """Threads in which a compiled callable is called."""
        self._quiet = 0
        self._windows = 0
        self._forget = [torch_calls.on_outermost_call(self._call_begins, self._call_ends)]
        self._forget.append(torch_disabling.on_function_disabled(self._watch_disabled))

    def step_ended(self, step: int, compiled: bool) -> None:
        """Reports the step, when it was sampled."""
        sample, session = self._sample, self._session
        if sample is not None:
            started = time.monotonic()
            self.stop()
            fault, clock = tensor_reads.take_fault(), steps.clock_of(session)
            if fault is not None:  # the sample misses a read: a fault, no count
                session.fault("reads of tensors", fault)
            elif (
                not compiled
                and sample.whole
                and clock is not None
                # With tentative ends left, several steps end at once: the sample spans them all.
                and clock.tentative == 0
                and clock.thread == sample.thread
            ):
                self._schedule.sampled(step)
                middle = session.at((sample.began + started) / 2)
                session.emit(sample.event(middle, step))
            session.charge(time.monotonic() - started)
        self._quiet = 0 if compiled else self._quiet + 1

    def step_begins(self, step: int) -> None:
        """Samples this step, when it is due. Called last: what our own collectors look at
        between two steps is torch's own."""
        session, schedule = self._session, self._schedule
        if self._quiet < QUIET_STEPS or not schedule.due(step):
            return
        clock = steps.clock_of(session)
        if (
            clock is None
            or not clock.here
            or schedule.samples >= schedule.max_samples
            or self._windows >= schedule.max_windows
            or not torch_calls.sees_compiled_calls()
        ):
            return
        phases = clock.phases
        sample = SyncSample(
            clock.thread,
            schedule.max_reads,
            lambda: phases.name_at(float("inf")),
            on_device=bool(self._torch.cuda.is_initialized()),
        )
        with _lock:
            self._sample = sample
            self._put()
        session.watched_until = max(session.watched_until, schedule.watched_until(step))

    def stop(self) -> None:
        """Ends the sample in progress; nothing of it is reported from here."""
        with _lock:
            self._take_away()
            self._sample = None

    def uninstall(self) -> None:
        """Puts everything back."""
        self.stop()
        for forget in self._forget:
            forget()

    # --- windows: the parts of a sampled step in which no compiled callable is called ---

    def _put(self) -> None:
        sample = self._sample
        if sample is None or self._placed is not None or self._calling:
            return
        inside = torch_open_calls.in_compiled_call()
        if (inside and not _in_own_function()) or torch_calls.frames_are_offered():
            return
        # Half of them are kept for what is outside compiled calls.
        if self._windows >= self._schedule.max_windows // (2 if inside else 1):
            sample.complete = False
            sample.whole = sample.whole and inside
            return
        self._windows += 1
        self._placed = sample
        tensor_reads.put(self._torch.Tensor, sample)

    def _take_away(self) -> None:
        if self._placed is not None:
            tensor_reads.take_away(self._torch.Tensor, self._placed)
            self._placed = None

    def _call_begins(self, _key: int) -> None:
        with _lock:
            self._calling.add(_get_ident())
            if self._placed is not None:
                self._take_away()

    def _call_ends(self, _key: int) -> None:
        if torch_open_calls.in_compiled_call() and not _in_own_function():
            return
        with _lock:
            self._calling.discard(_get_ident())
            if self._sample is not None:
                self._put()

    def _watch_disabled(self) -> None:
        """The program has functions that are not compiled on purpose."""
        if len(self._forget) < 3:
            self._forget.append(
                torch_calls.on_disabled_call(self._disabled_ends, self._disabled_begins)
            )

    def _disabled_begins(self, _function: Any) -> None:
        """Where a compiled call is in progress, nothing of it is until the function returns."""
        if self._sample is None or _get_ident() not in self._calling or not _in_own_function():
            return
        with _lock:
            self._calling.discard(_get_ident())
            self._put()

    def _disabled_ends(self, _function: Any, _began: float, _ended: float) -> None:
        if not torch_open_calls.in_compiled_call() or _in_own_function():
            return
        with _lock:
            self._calling.add(_get_ident())
            self._take_away()

    def forked(self) -> None:
        """This process is a fork: it has one thread, and its reads are not the session's."""
        global _lock
        _lock = threading.RLock()  # a thread that is not here may have held it
        self._take_away()
        self._sample = None
        self._calling.clear()


def _in_own_function() -> bool:
    """Whether this thread is in a function of the program's that is not compiled on purpose."""
    return disabled_calls.own_code_of(torch_open_calls.disabled_function()) is not None
