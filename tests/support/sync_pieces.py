"""What the tests of host synchronisations share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from attached import attached

from compilediag_harness.base.session import Session
from compilediag_harness.collectors import syncs, tensor_reads
from compilediag_harness.steps import steps
from compilediag_harness.wire import Event, FaultOccurred, SyncsSampled

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


def sampled(work: Any) -> dict[tuple[str, int], tuple[int, int]]:
    """(kind, line below the first of `work`) to (count, loop line) of one sampled step."""
    with observed() as events:
        warm_up()
        work()
        steps.step()
    told = [event for event in events if isinstance(event, SyncsSampled)]
    assert told
    assert not tensor_reads.names_of(torch.Tensor)
    first, sample = work.__code__.co_firstlineno, told[-1]
    rows = zip(sample.places, sample.kinds, sample.counts, sample.loops, strict=True)
    return {
        (kind, place.line - first): (count, loop - first if loop else 0)
        for place, kind, count, loop in rows
    }


class Clock:
    """Goes on by as many seconds as it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now
