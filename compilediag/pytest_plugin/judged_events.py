"""The judged part of a test, as if only that part had been watched.

What was known before the part (the process, torch, its settings, the steps) stays. A recompile
belongs to the part in which its compile ended, with the `Recompiled` event before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from compilediag.runs.watch import WatchResult
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
"""They are about the whole process, or about what has not happened yet."""


def part_of(run: WatchResult, start: float, end: float) -> WatchResult:
    """The run from `start` to `end`, both in seconds on the clock of its events."""
    part = WatchResult(run.timeline.user_roots)
    for event in events_between(run.events, start, end):
        part.keep(event)
    part.end(end - start, None)
    return part


def events_between(events: Sequence[Event], start: float, end: float) -> tuple[Event, ...]:
    """The events from `start` to `end`."""
    rows = [event for event in events if isinstance(event, Compiled)]
    inside = {(row.epoch, row.compile_id) for row in rows if start <= row.t <= end}
    before = {(row.epoch, row.compile_id) for row in rows if row.t < start}

    def belongs(event: Event) -> bool:
        if isinstance(event, _CONTEXT):
            return True
        if isinstance(event, _LEFT_OUT):
            return False
        if isinstance(event, Recompiled):
            key = (event.epoch, event.compile_id)
            return key in inside or (key not in before and start <= event.t <= end)
        return start <= event.t <= end

    return tuple(event for event in events if belongs(event))


def unfinished(events: Iterable[Event]) -> tuple[CompileStarted, ...]:
    """Compiles that began and have no row: still going on, or none of Dynamo's (a recording of a
    CUDA graph, a tuning run of Triton)."""
    started = [event for event in events if isinstance(event, CompileStarted)]
    rows = {(row.epoch, row.compile_id) for row in events if isinstance(row, Compiled)}
    return tuple(event for event in started if (event.epoch, event.compile_id) not in rows)
