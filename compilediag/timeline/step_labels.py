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
    CadenceAsked,
    CadenceFired,
    CollectivesPlanned,
    Compiled,
    CompileStarted,
    CudagraphRecorded,
    DynamoReset,
    Event,
    EvidenceLost,
    FixedShapeCompiled,
    FixedShapeWarmed,
    FrameSkipped,
    GraphBroke,
    PaddingChecked,
    Recompiled,
    RowsRun,
    SpanEnded,
    StepsEnded,
    SyncsSampled,
    WarningSeen,
)

_IN_A_STEP = (
    CadenceAsked,
    CollectivesPlanned,
    Compiled,
    CompileStarted,
    CudagraphRecorded,
    DynamoReset,
    EvidenceLost,
    FixedShapeCompiled,
    FixedShapeWarmed,
    FrameSkipped,
    GraphBroke,
    PaddingChecked,
    Recompiled,
    RowsRun,
    SpanEnded,
    SyncsSampled,
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
    return tuple(_labelled(event, ends, numbers) for event in events)


def _labelled(event: Event, ends: list[float], numbers: list[int]) -> Event:
    if isinstance(event, _IN_A_STEP):
        return replace(event, step=_step_at(event.t, event.step, ends, numbers))
    if isinstance(event, CadenceFired):
        told = zip(event.at, event.steps, strict=False)
        return replace(event, steps=tuple(_step_at(t, step, ends, numbers) for t, step in told))
    return event


def _step_at(t: float, told: int, ends: list[float], numbers: list[int]) -> int:
    """The step at `t`; the one that was told where the steps around it are not known."""
    place = bisect_left(ends, t)
    before = numbers[place - 1] if place else -1
    if place == len(ends):  # after the last step that was written
        return max(told, before + 1)
    return before + 1 if numbers[place] == before + 1 else told
