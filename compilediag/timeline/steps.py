"""What was measured of the steps of a process: times, device times, disabled calls, hooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from compilediag.timeline.process import ProcessEvents
from compilediag_harness.wire import (
    Compiled,
    DeviceStepsTimed,
    DisabledCallsEnded,
    HooksFound,
    Location,
    StepsEnded,
)


@dataclass(frozen=True, slots=True)
class Step:
    """One finished step; seconds, None for a phase that was not measured."""

    process: int
    number: int
    end: float
    wall_s: float
    data_wait_s: float | None
    optimizer_s: float | None
    spans_s: float | None
    compile_s: float
    forward_s: float | None = None
    backward_s: float | None = None
    unsampled: bool = False
    """Only its end is known, and its waits for data and spans; nothing of its calls."""
    measuring_s: float = 0.0
    """Seconds of our own work in it, where that was much."""
    source: str = ""
    """What marked it: "step()", "optimizer", "call"."""


@dataclass(frozen=True, slots=True)
class DeviceStep:
    """Device seconds of one step, None for a phase it does not have."""

    process: int
    number: int
    step_s: float
    forward_s: float | None
    backward_s: float | None


@dataclass(frozen=True, slots=True)
class CallsOutside:
    """The calls of one function behind `torch.compiler.disable` in one phase of the steps."""

    process: int
    function: Location
    phase: str
    count: int
    total_s: float
    longest_s: float


@dataclass(frozen=True, slots=True)
class ModuleHook:
    """A hook of the program's on a compiled module or its parameters, when the process ended."""

    process: int
    kind: str
    """"forward_hook", "backward_hook", "tensor_hook"...; see `HooksFound`."""
    target: str
    function: Location
    disabled: bool


@dataclass(frozen=True, slots=True)
class PartialPhase:
    """A phase of the steps that was measured in part."""

    process: int
    phase: str
    missing: str


def steps_of(part: ProcessEvents) -> list[Step]:
    """Every step that ended, with the seconds that compiles took in it."""
    compile_s: dict[int, float] = {}
    for row in part.of(Compiled):
        compile_s[row.step] = compile_s.get(row.step, 0.0) + row.seconds
    made: list[Step] = []
    for batch in part.of(StepsEnded):
        for offset, (end, wall_s) in enumerate(zip(batch.ends, batch.every_wall(), strict=False)):
            number = batch.first + offset
            made.append(
                Step(
                    process=part.index,
                    number=number,
                    end=end,
                    wall_s=wall_s,
                    data_wait_s=_at(batch.data_wait, offset),
                    optimizer_s=_at(batch.optimizer, offset),
                    spans_s=_at(batch.spans, offset),
                    compile_s=compile_s.get(number, 0.0),
                    forward_s=_at(batch.forward, offset),
                    backward_s=_at(batch.backward, offset),
                    unsampled=batch.noted,
                    measuring_s=0.0 if offset else batch.measuring_s,
                    source=batch.source,
                )
            )
    return made


def _at(values: tuple[float, ...], index: int) -> float | None:
    """None where the phase was not measured: an empty tuple is not zero seconds."""
    return values[index] if index < len(values) else None


def partial_phases_of(process: int, batches: Iterable[StepsEnded]) -> list[PartialPhase]:
    """Phases that were measured in part, each once."""
    missing = {name: why for batch in batches for name, why in batch.partial.items()}
    return [PartialPhase(process, name, why) for name, why in missing.items()]


def device_steps_of(process: int, batches: Iterable[DeviceStepsTimed]) -> list[DeviceStep]:
    """The steps whose device time is known."""
    return [
        DeviceStep(process, *row)
        for batch in batches
        for row in zip(batch.steps, batch.step_s, batch.forward_s, batch.backward_s, strict=False)
    ]


def disabled_calls_of(process: int, batches: Iterable[DisabledCallsEnded]) -> list[CallsOutside]:
    """Each function once a phase, its batches added up."""
    sums: dict[tuple[Location, str], CallsOutside] = {}
    for batch in batches:
        columns = (batch.functions, batch.phases, batch.counts, batch.total_s, batch.longest_s)
        for function, phase, count, total_s, longest_s in zip(*columns, strict=False):
            key = (function, phase)
            known = sums.get(key) or CallsOutside(process, function, phase, 0, 0.0, 0.0)
            sums[key] = replace(
                known,
                count=known.count + count,
                total_s=known.total_s + total_s,
                longest_s=max(known.longest_s, longest_s),
            )
    return list(sums.values())


def hooks_of(process: int, checks: Sequence[HooksFound]) -> list[ModuleHook]:
    """The hooks on compiled modules, at the last check."""
    found = checks[-1]
    columns = (found.kinds, found.targets, found.functions, found.disabled)
    return [
        ModuleHook(process, kind, target, function, disabled)
        for kind, target, function, disabled in zip(*columns, strict=False)
    ]
