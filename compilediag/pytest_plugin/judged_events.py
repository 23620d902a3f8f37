"""The events of a stretch of a test, as if only that stretch had been watched.

Pure. What was known before the stretch (the process, torch, its settings, the steps) stays; a
recompile belongs to the stretch in which it ended, with the question torch asked before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from compilediag_harness.wire import (
    Compiled,
    CompileStarted,
    EnvironmentRead,
    Event,
    HazardsChecked,
    ProcessEnded,
    ProcessStarted,
    Recompiled,
    StepsEnded,
    TorchSeen,
    UnguardedChanged,
)

_CONTEXT = (ProcessStarted, TorchSeen, EnvironmentRead, StepsEnded)
_LEFT_OUT = (ProcessEnded, HazardsChecked, UnguardedChanged)
"""They speak of the whole process, or of what has not happened yet."""


def stretch(events: Sequence[Event], start: float, end: float) -> tuple[Event, ...]:
    """The events from `start` to `end`, both in seconds on the clock of the events."""
    rows = [event for event in events if isinstance(event, Compiled)]
    inside = {(row.epoch, row.compile_id) for row in rows if start <= row.t <= end}
    before = {(row.epoch, row.compile_id) for row in rows if row.t < start}
    return tuple(event for event in events if _belongs(event, start, end, inside, before))


def _belongs(
    event: Event,
    start: float,
    end: float,
    inside: set[tuple[int, str]],
    before: set[tuple[int, str]],
) -> bool:
    if isinstance(event, _CONTEXT):
        return True
    if isinstance(event, _LEFT_OUT):
        return False
    if isinstance(event, Recompiled):
        key = (event.epoch, event.compile_id)
        return key in inside or (key not in before and start <= event.t <= end)
    return start <= event.t <= end


def unfinished(events: Sequence[Event]) -> tuple[CompileStarted, ...]:
    """Compiles that began and have no row: still going on, or none of Dynamo's (a recording of a
    CUDA graph, a tuning run of Triton)."""
    rows = {(row.epoch, row.compile_id) for row in events if isinstance(row, Compiled)}
    return tuple(
        event
        for event in events
        if isinstance(event, CompileStarted) and (event.epoch, event.compile_id) not in rows
    )
