"""Events get the step they lie in by their time, once it is known where steps ended.

While a program runs, an event is told with the step in progress as far as it was known: the first
iteration of several optimizers, or compiled calls that waited for an optimizer in vain, are decided
later. Step ends are told only when they are final, so they overrule the labels. Pure; doing it
twice changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import replace

from compilediag_harness.wire import (
    Compiled,
    CompileStarted,
    DynamoReset,
    Event,
    EvidenceLost,
    FrameSkipped,
    GraphBroke,
    Recompiled,
    SpanEnded,
    StepsEnded,
    WarningSeen,
)

_IN_A_STEP = (
    Compiled,
    CompileStarted,
    DynamoReset,
    EvidenceLost,
    FrameSkipped,
    GraphBroke,
    Recompiled,
    SpanEnded,
    WarningSeen,
)
"""Told when they happen. The others are told after the step they are about has ended."""


def with_final_steps(events: Iterable[Event]) -> tuple[Event, ...]:
    """The events of one process, each with the step whose time it lies in."""
    events = tuple(events)
    ends: list[float] = []
    numbers: list[int] = []
    for batch in events:
        if isinstance(batch, StepsEnded):
            ends += batch.ends
            numbers += range(batch.first, batch.first + len(batch.ends))
    if not ends:
        return events
    return tuple(
        replace(event, step=_step_at(event.t, event.step, ends, numbers))
        if isinstance(event, _IN_A_STEP)
        else event
        for event in events
    )


def _step_at(t: float, told: int, ends: list[float], numbers: list[int]) -> int:
    """The step at `t`; the one that was told where the steps around it are not known."""
    place = bisect_left(ends, t)
    before = numbers[place - 1] if place else -1
    if place == len(ends):  # after the last step that was written
        return max(told, before + 1)
    return before + 1 if numbers[place] == before + 1 else told
