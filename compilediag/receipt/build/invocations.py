"""The invocations and the throughput of a receipt."""

from __future__ import annotations

from compilediag.diagnosis.figures.invocations import InvocationFigures, invocations_in, work_of
from compilediag.receipt.build.relative_paths import PathShortener
from compilediag.receipt.schema.invocations import (
    Invocation,
    PerStep,
    ShapesRecord,
    Throughput,
    VaryingSizesRecord,
)
from compilediag.timeline.call_sizes import varying_sizes
from compilediag.timeline.invocations import Invocations
from compilediag.timeline.timeline import Timeline

SHAPES_KEPT = 16
"""Combinations of shapes of one callable: the most frequent."""

CALLABLES_KEPT = 64

SIZES_KEPT = 8192
"""Combinations of changing sizes of one callable: the most frequent."""


def invocations_section(timeline: Timeline, places: PathShortener) -> tuple[Invocation, ...]:
    """The callables of the lead process, in the order they were first called."""
    return tuple(_record(item, places) for item in invocations_in(timeline)[:CALLABLES_KEPT])


def _record(figures: InvocationFigures, places: PathShortener) -> Invocation:
    calls = figures.calls
    named = [item for item in calls.shapes if item.shapes is not None]
    kept = named[:SHAPES_KEPT]
    per_step = figures.per_step
    return Invocation(
        name=calls.function.function,
        file=places.short(calls.function.file) if calls.function.file else None,
        line=calls.function.line or None,
        calls=calls.calls,
        complete=figures.complete,
        per_step=None
        if per_step is None
        else PerStep(
            steps=per_step.steps, min=per_step.min, median=per_step.median, max=per_step.max
        ),
        shapes=tuple(ShapesRecord(shapes=str(item.shapes), count=item.count) for item in kept),
        other_shapes=calls.calls - sum(item.count for item in kept),
        samples=figures.samples,
        elements=figures.elements,
        varying=_varying(calls),
        padded_calls=calls.padded,
    )


def _varying(calls: Invocations) -> VaryingSizesRecord | None:
    """What a plan of buckets needs; shapes beyond those kept are counted."""
    shapes = [(item.shapes, item.count) for item in calls.shapes[:SIZES_KEPT]]
    found = varying_sizes(shapes, calls.tensors)
    if found is None:
        return None
    left_out = sum(item.count for item in calls.shapes[SIZES_KEPT:])
    return VaryingSizesRecord(
        dims=found.dims,
        sizes=found.sizes,
        counts=found.counts,
        other_calls=found.other_calls + left_out,
    )


def throughput_section(timeline: Timeline) -> Throughput | None:
    """None when there was neither a step nor a call with a tensor."""
    lead = timeline.lead
    walls = [step.wall_s for step in timeline.steps if step.process == lead]
    work = work_of(timeline)
    wall_s = sum(walls)
    steps_per_s = len(walls) / wall_s if wall_s > 0.0 else None
    if work is None and steps_per_s is None:
        return None
    return Throughput(
        steps_per_s=steps_per_s,
        samples_per_s=None if work is None else work.samples_per_s,
        callable=None if work is None else work.callable,
        samples=None if work is None else work.samples,
        elements=None if work is None else work.elements,
        from_steps=None if work is None else work.from_steps,
    )
