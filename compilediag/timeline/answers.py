"""The calls that a trial timed, and the records of trials of which the last one counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from compilediag_harness.wire import CallsTimed, Location, StateRead, TrialApplied


@dataclass(frozen=True, slots=True)
class TimedCalls:
    """The outermost calls of one compiled callable in one step."""

    process: int
    function: Location
    step: int
    count: int
    seconds: float
    """On the host, of all of them."""
    on_device: bool
    """A CUDA device was in use: the calls may have returned before their work was done."""


def timed_calls_of(process: int, events: Iterable[CallsTimed]) -> list[TimedCalls]:
    """Of one process, by callable and step."""
    return [
        TimedCalls(process, event.functions[index], step, count, seconds, event.on_device)
        for event in events
        for index, step, count, seconds in zip(
            event.callables, event.steps, event.counts, event.seconds, strict=False
        )
        if 0 <= index < len(event.functions)
    ]


def outcomes_of(_: int, events: Iterable[TrialApplied]) -> Iterable[TrialApplied]:
    """The last outcome of each part of the plan in one process."""
    return {event.change: event for event in events}.values()


def held_states_of(_: int, events: Iterable[StateRead]) -> Iterable[StateRead]:
    """What the objects that compiled functions reach held; the records of one are put together."""
    found: dict[tuple[Location, int, int | None], StateRead] = {}
    for event in events:
        key = event.function, event.instance, event.call
        before = found[key].answers if key in found else ()
        found[key] = replace(event, answers=before + event.answers)
    return found.values()
