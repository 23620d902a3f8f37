"""What the tests of host synchronisations share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from attached import attached

from compilediag_harness.base.session import Session
from compilediag_harness.collectors import syncs
from compilediag_harness.steps import steps
from compilediag_harness.wire import Event, FaultOccurred

QUIET = syncs.QUIET_STEPS
"""Calls of `step()` after which the next step is sampled."""


@contextmanager
def observed() -> Iterator[list[Event]]:
    """The collectors around a block; the events are complete after it."""
    events: list[Event] = []
    session = Session(events.append)
    with attached(session):
        yield events
    assert not [event for event in events if isinstance(event, FaultOccurred)]


def warm_up() -> None:
    for _ in range(QUIET):
        steps.step()


class Clock:
    """Goes on by as many seconds as it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now
