"""Folds what one process told about time: its steps, device time, calls, hooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from compilediag.timeline.process import ProcessEvents
from compilediag.timeline.steps import DeviceStep, DisabledCalls, Hook, PartialPhase, Step
from compilediag_harness.wire import (
    Compiled,
    DeviceStepsTimed,
    DisabledCallsEnded,
    HooksFound,
    Location,
    StepsEnded,
)


def steps(part: ProcessEvents) -> list[Step]:
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
                    noted=batch.noted,
                    measuring_s=0.0 if offset else batch.measuring_s,
                )
            )
    return made


def _at(values: tuple[float, ...], index: int) -> float | None:
    """None where the phase was not measured: an empty tuple is not zero seconds."""
    return values[index] if index < len(values) else None


def partial_phases(process: int, batches: Iterable[StepsEnded]) -> list[PartialPhase]:
    """Phases that were measured in part, each once."""
    missing = {name: why for batch in batches for name, why in batch.partial.items()}
    return [PartialPhase(process, name, why) for name, why in missing.items()]


def device_steps(process: int, batches: Iterable[DeviceStepsTimed]) -> list[DeviceStep]:
    """The steps whose device time is known."""
    return [
        DeviceStep(process, *row)
        for batch in batches
        for row in zip(batch.steps, batch.step_s, batch.forward_s, batch.backward_s, strict=False)
    ]


def disabled_calls(process: int, batches: Iterable[DisabledCallsEnded]) -> list[DisabledCalls]:
    """Each function once a phase, its batches added up."""
    sums: dict[tuple[Location, str], DisabledCalls] = {}
    for batch in batches:
        columns = (batch.functions, batch.phases, batch.counts, batch.total_s, batch.longest_s)
        for function, phase, count, total_s, longest_s in zip(*columns, strict=False):
            key = (function, phase)
            known = sums.get(key) or DisabledCalls(process, function, phase, 0, 0.0, 0.0)
            sums[key] = replace(
                known,
                count=known.count + count,
                total_s=known.total_s + total_s,
                longest_s=max(known.longest_s, longest_s),
            )
    return list(sums.values())


def hooks(process: int, looks: Sequence[HooksFound]) -> list[Hook]:
    """The hooks on compiled modules, at the last look."""
    if not looks:
        return []
    found = looks[-1]
    columns = (found.kinds, found.targets, found.functions, found.disabled)
    return [
        Hook(process, kind, target, function, disabled)
        for kind, target, function, disabled in zip(*columns, strict=False)
    ]
