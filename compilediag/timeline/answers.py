"""What a trial changed, and the answers the program gave: outputs, state, random numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from compilediag_harness.wire import (
    Answer,
    CallShadowed,
    CallsTimed,
    Location,
    OutputsSampled,
    RandomStateRead,
    StateRead,
    TrialApplied,
)


@dataclass(frozen=True, slots=True)
class TrialChange:
    """What became of a part of the plan in one process."""

    process: int
    change: str
    """In words: the part's `label`."""
    problem: str | None
    """Why it was not applied, or is not in force any more; None when it was."""


@dataclass(frozen=True, slots=True)
class SampledCall:
    """What one outermost call of a compiled function returned."""

    process: int
    function: Location
    call: int
    """Of this function in the process, 0 for the first."""
    step: int
    answers: tuple[Answer, ...]
    complete: bool
    reference: tuple[Answer, ...] = ()
    """The same call in float64; empty where there is none."""


@dataclass(frozen=True, slots=True)
class ShadowedCall:
    """A sampled call of a compiled callable against the same call eager."""

    process: int
    seen: CallShadowed


@dataclass(frozen=True, slots=True)
class HeldState:
    """What an object that a compiled function reaches held."""

    process: int
    function: Location
    instance: int
    """Which of the function's objects."""
    module: str
    """Type of the object."""
    call: int | None
    """After which sampled call; None: when the process ended."""
    answers: tuple[Answer, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class RandomState:
    """How far a generator had come when a process ended."""

    process: int
    generator: str
    digest: str


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


def trial_changes_of(process: int, events: Iterable[TrialApplied]) -> list[TrialChange]:
    """The last outcome of each part."""
    last = {event.change: event.problem for event in events}
    return [TrialChange(process, change, problem) for change, problem in last.items()]


def sampled_calls_of(process: int, events: Iterable[OutputsSampled]) -> list[SampledCall]:
    """Of one process, in time order."""
    return [
        SampledCall(
            process,
            event.function,
            event.call,
            event.step,
            event.answers,
            event.complete,
            event.reference,
        )
        for event in events
    ]


def shadowed_calls_of(process: int, events: Iterable[CallShadowed]) -> list[ShadowedCall]:
    """Of one process, in time order."""
    return [ShadowedCall(process, event) for event in events]


def held_states_of(process: int, events: Iterable[StateRead]) -> list[HeldState]:
    """Of one process; the records of one object are put together."""
    found: dict[tuple[Location, int, int | None], HeldState] = {}
    for event in events:
        key = event.function, event.instance, event.call
        before = found[key].answers if key in found else ()
        found[key] = HeldState(
            process,
            event.function,
            event.instance,
            event.module,
            event.call,
            before + event.answers,
            event.complete,
        )
    return list(found.values())


def random_states_of(process: int, events: Iterable[RandomStateRead]) -> list[RandomState]:
    """Of one process."""
    return [
        RandomState(process, generator, digest)
        for event in events
        for generator, digest in event.digests
    ]
