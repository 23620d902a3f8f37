"""Folds what one process told about time beside its steps: device time, calls, hooks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from compilediag.timeline import DeviceStep, DisabledCalls, Hook, PartialPhase
from compilediag_harness.wire import (
    DeviceStepsTimed,
    DisabledCallsEnded,
    HooksFound,
    Location,
    StepsEnded,
)


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


def hooks(process: int, found: HooksFound | None) -> list[Hook]:
    """The hooks on compiled modules."""
    if found is None:
        return []
    columns = (found.kinds, found.targets, found.functions, found.disabled)
    return [
        Hook(process, kind, target, function, disabled)
        for kind, target, function, disabled in zip(*columns, strict=False)
    ]
