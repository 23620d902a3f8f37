"""Tells every session what tracked runs measured: when they end, and sometimes before."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from compilediag_harness.base.session import Session
from compilediag_harness.wire import RunTracked, TrackedRunsLeftOut

TELL_S = 10.0
"""A run in progress is told of this often, in seconds, for programs that are killed: not oftener,
because each time all of its figures are written."""

RUN_LIMIT = 1024
"""Most runs that a session is told of, and most that a tracker keeps for its file."""


class Run(Protocol):
    """A run in progress."""

    def figures(self, at: float, state: str, *, median: bool) -> RunTracked:
        """What there is to tell at a reading of `time.monotonic()`."""
        ...


class _Teller:
    """What one session was told."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.runs: set[int] = set()
        self.left_out: set[int] = set()

    def tell(self, figures: Callable[[Session], RunTracked]) -> None:
        """Nothing that fails here is the program's concern."""
        try:
            event = figures(self.session)
            if event.number not in self.runs and len(self.runs) >= RUN_LIMIT:
                self.left_out.add(event.number)
                return
            self.runs.add(event.number)
            self.session.emit(event)
        except Exception as error:
            self.session.fault("tracker", error)


tellers: tuple[_Teller, ...] = ()
"""One per session; without any, runs are still summed up, for who asks them."""

_running: dict[int, Run] = {}
"""Runs in progress, by number."""

_follows_forks = False


def began(number: int, run: Run) -> None:
    """A run has begun."""
    global _follows_forks
    if not _follows_forks and hasattr(os, "register_at_fork"):
        _follows_forks = True
        # A fork does not go on with the runs of its parent.
        os.register_at_fork(after_in_child=_running.clear)
    _running[number] = run
    while len(_running) > RUN_LIMIT:  # runs that nobody ended
        _running.pop(next(iter(_running)))


def goes_on(run: Run) -> None:
    """A run in progress is told of."""
    for teller in tellers:
        started = time.monotonic()
        teller.tell(partial(_as_of_now, run, median=False))
        teller.session.charge(time.monotonic() - started)


def ended(figures: RunTracked, at: float) -> None:
    """A run has ended, at a reading of `time.monotonic()`, with these figures."""
    _running.pop(figures.number, None)
    for teller in tellers:
        teller.tell(partial(_retimed, figures, at))


def install(session: Session) -> None:
    """Starts telling `session`."""
    global tellers
    tellers = (*tellers, _Teller(session))


def finish(session: Session) -> None:
    """Tells of the runs that are still in progress."""
    started = time.monotonic()
    for teller in tellers:
        if teller.session is session:
            for run in tuple(_running.values()):
                teller.tell(partial(_as_of_now, run, median=True))
            if teller.left_out:
                session.emit(TrackedRunsLeftOut(session.now(), len(teller.left_out)))
            session.charge(time.monotonic() - started)


def _retimed(figures: RunTracked, at: float, session: Session) -> RunTracked:
    return replace(figures, t=session.at(at))


def _as_of_now(run: Run, session: Session, *, median: bool) -> RunTracked:
    at = time.monotonic()
    return _retimed(run.figures(at, "running", median=median), at, session)


def uninstall(session: Session) -> None:
    """Stops telling `session`; call `finish` before."""
    global tellers
    tellers = tuple(teller for teller in tellers if teller.session is not session)
