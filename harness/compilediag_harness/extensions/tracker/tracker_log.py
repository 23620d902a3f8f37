"""What sessions receive of tracked runs: when they end, and now and then before."""

from __future__ import annotations

import os
import time
from dataclasses import replace

from compilediag_harness.base.session import Session
from compilediag_harness.base.session_sinks import SessionSink, SessionSinks
from compilediag_harness.extensions.tracker.tracked_run import TrackedRun
from compilediag_harness.wire import RunTracked, TrackedRunsLeftOut

PERIOD_S = 10.0
"""A run in progress is reported this often, for programs that are killed: not oftener, because each
report has all of its metrics."""

MAX_RUNS = 1024
"""Runs that a session receives, and that a tracker keeps for its file."""

_running: dict[int, TrackedRun] = {}
"""Runs in progress, by number."""

if hasattr(os, "register_at_fork"):  # a fork does not go on with the runs of its parent
    os.register_at_fork(after_in_child=_running.clear)


class _Reported(SessionSink):
    """The runs that one session has received. Nothing that fails here reaches the program."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._runs: set[int] = set()
        self._left_out: set[int] = set()

    def report(self, run: RunTracked, at: float) -> None:
        """One run as it was at a reading of `time.monotonic()`."""
        if run.number not in self._runs and len(self._runs) >= MAX_RUNS:
            self._left_out.add(run.number)
            return
        self._runs.add(run.number)
        self.session.emit(replace(run, t=self.session.at(at)))

    def report_running(self, run: TrackedRun, *, median: bool) -> None:
        """A run in progress, as it is now."""
        started = time.monotonic()
        try:
            self.report(run.snapshot(started, "running", median=median), started)
        except Exception as error:
            self.session.fault("tracker", error)
        self.session.charge(time.monotonic() - started)

    def finish(self) -> None:
        """Reports the runs that are still in progress."""
        for run in tuple(_running.values()):
            self.report_running(run, median=True)
        if self._left_out:
            self.session.emit(TrackedRunsLeftOut(self.session.now(), len(self._left_out)))


sinks = SessionSinks(_Reported)
"""Without any, runs are still summed up for the program itself."""


def began(run: TrackedRun) -> None:
    """A run has begun."""
    _running[run.number] = run
    while len(_running) > MAX_RUNS:  # runs that were never ended
        _running.pop(next(iter(_running)))


def progressed(run: TrackedRun, at: float) -> None:
    """A step was recorded at a reading of `time.monotonic()`: reports the run if it is time."""
    if sinks.all and at - run.reported_at >= PERIOD_S:
        run.reported_at = at
        for sink in sinks.all:
            sink.report_running(run, median=False)


def ended(run: RunTracked, at: float) -> None:
    """A run has ended at a reading of `time.monotonic()`."""
    _running.pop(run.number, None)
    for sink in sinks.all:
        try:
            sink.report(run, at)
        except Exception as error:
            sink.session.fault("tracker", error)
