"""The invocations and the throughput of a receipt."""

from __future__ import annotations

from compilediag.diagnosis.figures.invocations import InvocationFigures, invocations_in, work_of
from compilediag.receipt.schema.invocations import Invocation, Throughput, VaryingSizesRecord
from compilediag.receipt.schema.record import record_from
from compilediag.timeline.call_sizes import varying_sizes
from compilediag.timeline.invocations import Invocations
from compilediag.timeline.timeline import Timeline

MAX_SHAPES = 16
"""Combinations of shapes of one callable: the most frequent."""

MAX_CALLABLES = 64

MAX_SIZES = 8192
"""Combinations of changing sizes of one callable: the most frequent."""


def invocations_section(timeline: Timeline) -> tuple[Invocation, ...]:
    """The callables of the lead process, in the order they were first called."""
    return tuple(_record(item) for item in invocations_in(timeline)[:MAX_CALLABLES])


def _record(figures: InvocationFigures) -> Invocation:
    calls = figures.calls
    named = [item for item in calls.shapes if item.shapes is not None]
    kept = tuple(named[:MAX_SHAPES])
    return record_from(
        Invocation,
        figures,
        name=calls.function.function,
        file=calls.function.file or None,
        line=calls.function.line or None,
        calls=calls.calls,
        shapes=kept,
        other_shapes=calls.calls - sum(item.count for item in kept),
        varying=_varying(calls),
        padded_calls=calls.padded,
    )


def _varying(calls: Invocations) -> VaryingSizesRecord | None:
    """What a plan of buckets needs; shapes beyond those kept are counted."""
    shapes = [(item.shapes, item.count) for item in calls.shapes[:MAX_SIZES]]
    found = varying_sizes(shapes, calls.tensors)
    if found is None:
        return None
    left_out = sum(item.count for item in calls.shapes[MAX_SIZES:])
    return record_from(VaryingSizesRecord, found, other_calls=found.other_calls + left_out)


def throughput_section(timeline: Timeline) -> Throughput | None:
    """None when there was neither a step nor a call with a tensor."""
    lead = timeline.lead
    walls = [step.wall_s for step in timeline.steps if step.process == lead]
    work = work_of(timeline)
    wall_s = sum(walls)
    steps_per_s = len(walls) / wall_s if wall_s > 0.0 else None
    if work is None and steps_per_s is None:
        return None
    return record_from(Throughput, work, steps_per_s=steps_per_s)
