"""How often each compiled callable was called in a step, and how much work the run did.

A step counts where all calls were recorded one by one: not where it was not sampled. Samples are
the leading sizes of the first tensors of the calls: two runs that agree in them have done the same
work.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from msgspec.structs import replace

from compilediag.receipt.schema.invocations import (
    Invocation,
    PerStep,
    Throughput,
    VaryingSizesRecord,
)
from compilediag.receipt.schema.record import record_from
from compilediag.timeline.invocations import Calls, ShapeCount, varying_sizes
from compilediag.timeline.timeline import Step, Timeline

OFTEN = 2
"""A callable is called often when no other is called more than this many times as often."""


MAX_SHAPES = 16
"""Combinations of shapes of one callable: the most frequent."""

MAX_CALLABLES = 64

MAX_SIZES = 8192
"""Combinations of changing sizes of one callable: the most frequent."""


@dataclass(frozen=True, slots=True)
class InvocationFigures:
    """One compiled callable."""

    calls: Calls
    complete: bool
    """Every call was recorded; not where some steps were not sampled."""
    per_step: PerStep | None
    """None: no step was seen, or none of them whole."""
    samples: int | None
    """Of all calls; None where the samples of a call are not known, or calls were not recorded."""
    elements: int | None


def invocations_in(timeline: Timeline) -> tuple[InvocationFigures, ...]:
    """The callables of the lead process, in the order they were first called."""
    process = timeline.lead
    own = [item for item in timeline.invocations if item.process == process]
    steps = _whole_steps(timeline, own, process)
    complete = not any(step.unsampled for step in timeline.steps if step.process == process)
    return tuple(
        InvocationFigures(
            calls=item,
            complete=complete,
            per_step=_per_step(item, steps),
            samples=_total(item, lambda shape: shape.samples) if complete else None,
            elements=_total(item, lambda shape: shape.elements) if complete else None,
        )
        for item in own
    )


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


def _varying(calls: Calls) -> VaryingSizesRecord | None:
    """What a plan of buckets needs; shapes beyond those kept are counted."""
    shapes = [(item.shapes, item.count) for item in calls.shapes[:MAX_SIZES]]
    found = varying_sizes(shapes, calls.tensors)
    if found is None:
        return None
    left_out = sum(item.count for item in calls.shapes[MAX_SIZES:])
    return replace(found, other_calls=found.other_calls + left_out)


def throughput_section(timeline: Timeline) -> Throughput | None:
    """None when there was neither a step nor a call with a tensor."""
    lead = timeline.lead
    walls = [step.wall_s for step in timeline.steps if step.process == lead]
    work = work_of(timeline)
    wall_s = sum(walls)
    steps_per_s = len(walls) / wall_s if wall_s > 0.0 else None
    if work is None and steps_per_s is None:
        return None
    return replace(work or Throughput(), steps_per_s=steps_per_s)


def work_of(timeline: Timeline) -> Throughput | None:
    """What the run has done, by one callable: the first that was called of those that were called
    often, which is the model and not what follows it. None where it is not known."""
    figures = [
        item
        for item in invocations_in(timeline)
        if (item.samples if item.complete else any(item.calls.samples_at))
    ]
    if not figures:
        return None
    most = max(item.calls.calls for item in figures)
    model = next(item for item in figures if OFTEN * item.calls.calls >= most)
    name = model.calls.function.function
    if not model.complete:
        return _concluded(name, model.calls, timeline)
    return Throughput(
        callable=name,
        samples=model.samples,
        elements=model.elements,
        samples_per_s=_rate(model.calls, timeline),
    )


def _concluded(name: str, item: Calls, timeline: Timeline) -> Throughput:
    """The work of all steps, from those that were sampled: known where each of these was given the
    same, and nothing compiled in the others, which may have been given something else."""
    every = [step for step in timeline.steps if step.process == item.process]
    steps = _whole_steps(timeline, [item], item.process)
    if any(step.unsampled and step.compile_s for step in every):
        return Throughput(callable=name, from_steps=len(steps))
    indexes = _step_indexes(item, steps)
    samples = _times(_in_each(indexes, item.samples_at, len(steps)), len(every))
    elements = _times(_in_each(indexes, item.elements_at, len(steps)), len(every))
    wall_s = sum(step.wall_s for step in every)
    rate = samples / wall_s if samples is not None and wall_s > 0.0 else None
    return Throughput(
        callable=name,
        samples=samples,
        elements=elements,
        samples_per_s=rate,
        from_steps=len(steps),
    )


def _in_each(
    indexes: Sequence[int | None], values: Sequence[int | None], steps: int
) -> Sequence[int | None]:
    """The sum of each step; None where a value is not known."""
    sums: list[int | None] = [0] * steps
    for index, value in zip(indexes, values, strict=False):
        if index is not None:
            before = sums[index]
            sums[index] = None if value is None or before is None else before + value
    return sums


def _times(sums: Sequence[int | None], steps: int) -> int | None:
    one = set(sums)
    only = one.pop() if len(one) == 1 else None
    return None if only is None else only * steps


def _whole_steps(timeline: Timeline, calls: Sequence[Calls], process: int) -> Sequence[Step]:
    """Steps in which every call was recorded: all, or those before the first call that was not."""
    steps = [step for step in timeline.steps if step.process == process and not step.unsampled]
    if all(item.calls == len(item.at) for item in calls):
        return steps
    last = max((item.at[-1] for item in calls if item.at), default=0.0)
    return [step for step in steps if step.end <= last]


def _per_step(item: Calls, steps: Sequence[Step]) -> PerStep | None:
    if not steps:
        return None
    counts = [0] * len(steps)
    for index in _step_indexes(item, steps):
        if index is not None:
            counts[index] += 1
    return PerStep(steps=len(steps), min=min(counts), median=median(counts), max=max(counts))


def _step_indexes(item: Calls, steps: Sequence[Step]) -> list[int | None]:
    """For each recorded call the index of its step. A call at the end of a step begins the next."""
    ends = [step.end for step in steps]
    indexes: list[int | None] = []
    for at in item.at:
        index = bisect_right(ends, at)
        inside = index < len(steps) and at >= steps[index].end - steps[index].wall_s
        indexes.append(index if inside else None)
    return indexes


def _rate(item: Calls, timeline: Timeline) -> float | None:
    steps = _whole_steps(timeline, [item], item.process)
    wall_s = sum(step.wall_s for step in steps)
    counted = zip(_step_indexes(item, steps), item.samples_at, strict=False)
    samples = sum(count or 0 for index, count in counted if index is not None)
    return samples / wall_s if samples and wall_s > 0.0 else None


def _total(item: Calls, size: Callable[[ShapeCount], int | None]) -> int | None:
    total = 0
    for shape in item.shapes:
        one = size(shape)
        if one is None:
            return None
        total += one * shape.count
    return total
