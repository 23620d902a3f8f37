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

from compilediag.timeline.invocations import Invocations, ShapeCount
from compilediag.timeline.timeline import Step, Timeline

OFTEN = 2
"""A callable is called often when no other is called more than this many times as often."""


@dataclass(frozen=True, slots=True)
class CallsPerStep:
    """Calls in a step, over so many steps."""

    steps: int
    min: int
    median: float
    max: int


@dataclass(frozen=True, slots=True)
class InvocationFigures:
    """One compiled callable."""

    calls: Invocations
    complete: bool
    """Every call was recorded; not where some steps were not sampled."""
    per_step: CallsPerStep | None
    """None: no step was seen, or none of them whole."""
    samples: int | None
    """Of all calls; None where the samples of a call are not known, or calls were not recorded."""
    elements: int | None


@dataclass(frozen=True, slots=True)
class Work:
    """What the run has done, by one callable: the first that was called of those that were called
    often, which is the model and not what follows it."""

    callable: str
    samples: int | None
    """None: only some steps were sampled, and they were not given equally many."""
    elements: int | None
    samples_per_s: float | None
    """In steps, by their wall seconds."""
    from_steps: int | None = None
    """The steps these figures were concluded from, where they were not all sampled."""


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


def work_of(timeline: Timeline) -> Work | None:
    """None where it is not known."""
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
    return Work(name, model.samples, model.elements, _rate(model.calls, timeline))


def _concluded(name: str, item: Invocations, timeline: Timeline) -> Work:
    """The work of all steps, from those that were sampled: known where each of these was given the
    same, and nothing compiled in the others, which may have been given something else."""
    every = [step for step in timeline.steps if step.process == item.process]
    steps = _whole_steps(timeline, [item], item.process)
    if any(step.unsampled and step.compile_s for step in every):
        return Work(name, None, None, None, len(steps))
    indexes = _step_indexes(item, steps)
    samples = _times(_in_each(indexes, item.samples_at, len(steps)), len(every))
    elements = _times(_in_each(indexes, item.elements_at, len(steps)), len(every))
    wall_s = sum(step.wall_s for step in every)
    rate = samples / wall_s if samples is not None and wall_s > 0.0 else None
    return Work(name, samples, elements, rate, len(steps))


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


def _whole_steps(timeline: Timeline, calls: Sequence[Invocations], process: int) -> Sequence[Step]:
    """Steps in which every call was recorded: all, or those before the first call that was not."""
    steps = [step for step in timeline.steps if step.process == process and not step.unsampled]
    if all(item.calls == len(item.at) for item in calls):
        return steps
    last = max((item.at[-1] for item in calls if item.at), default=0.0)
    return [step for step in steps if step.end <= last]


def _per_step(item: Invocations, steps: Sequence[Step]) -> CallsPerStep | None:
    if not steps:
        return None
    counts = [0] * len(steps)
    for index in _step_indexes(item, steps):
        if index is not None:
            counts[index] += 1
    return CallsPerStep(len(steps), min(counts), median(counts), max(counts))


def _step_indexes(item: Invocations, steps: Sequence[Step]) -> list[int | None]:
    """For each recorded call the index of its step. A call at the end of a step begins the next."""
    ends = [step.end for step in steps]
    indexes: list[int | None] = []
    for at in item.at:
        index = bisect_right(ends, at)
        inside = index < len(steps) and at >= steps[index].end - steps[index].wall_s
        indexes.append(index if inside else None)
    return indexes


def _rate(item: Invocations, timeline: Timeline) -> float | None:
    steps = _whole_steps(timeline, [item], item.process)
    wall_s = sum(step.wall_s for step in steps)
    counted = zip(_step_indexes(item, steps), item.samples_at, strict=False)
    samples = sum(count or 0 for index, count in counted if index is not None)
    return samples / wall_s if samples and wall_s > 0.0 else None


def _total(item: Invocations, size: Callable[[ShapeCount], int | None]) -> int | None:
    total = 0
    for shape in item.shapes:
        one = size(shape)
        if one is None:
            return None
        total += one * shape.count
    return total
