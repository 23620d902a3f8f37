"""How often each compiled callable was called in a step, and how much work the run did.

A step counts where all calls were told one by one. Samples are the leading sizes of the first
tensors of the calls: two runs that agree in them have done the same work.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from compilediag.invocation_calls import Invocations
from compilediag.lead_process import lead_process
from compilediag.timeline import Step, Timeline

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
    per_step: CallsPerStep | None
    """None: no step was seen, or none of them whole."""
    samples: int | None
    """Of all calls; None where the samples of a call are not known."""
    elements: int | None


@dataclass(frozen=True, slots=True)
class Work:
    """What the run has done, told by one callable: the first that was called of those that were
    called often, which is the model and not what follows it."""

    callable: str
    samples: int
    elements: int | None
    samples_per_s: float | None
    """In steps, by their wall seconds."""


def invocations_in(timeline: Timeline) -> tuple[InvocationFigures, ...]:
    """The callables of the lead process, in the order they were first called."""
    process = lead_process(timeline)
    told = [item for item in timeline.invocations if item.process == process]
    steps = _whole_steps(timeline, told, process)
    return tuple(
        InvocationFigures(
            calls=item,
            per_step=_per_step(item, steps),
            samples=_total((shape.samples, shape.count) for shape in item.shapes),
            elements=_total((shape.elements, shape.count) for shape in item.shapes),
        )
        for item in told
    )


def work_of(timeline: Timeline) -> Work | None:
    """None where nothing tells it."""
    figures = [item for item in invocations_in(timeline) if item.samples]
    if not figures:
        return None
    most = max(item.calls.calls for item in figures)
    told = next(item for item in figures if OFTEN * item.calls.calls >= most)
    return Work(
        callable=told.calls.function.function,
        samples=told.samples or 0,
        elements=told.elements,
        samples_per_s=_rate(told.calls, timeline),
    )


def _whole_steps(timeline: Timeline, told: Sequence[Invocations], process: int) -> Sequence[Step]:
    """Steps in which every call was told: all, or those before the first call that was not."""
    steps = [step for step in timeline.steps if step.process == process]
    if all(item.calls == len(item.at) for item in told):
        return steps
    last = max((item.at[-1] for item in told if item.at), default=0.0)
    return [step for step in steps if step.end <= last]


def _per_step(item: Invocations, steps: Sequence[Step]) -> CallsPerStep | None:
    if not steps:
        return None
    counts = [0] * len(steps)
    for place in _places(item, steps):
        if place is not None:
            counts[place] += 1
    return CallsPerStep(len(steps), min(counts), median(counts), max(counts))


def _places(item: Invocations, steps: Sequence[Step]) -> list[int | None]:
    """For each told call the position of its step. A call at the end of a step begins the next."""
    ends = [step.end for step in steps]
    places: list[int | None] = []
    for at in item.at:
        place = bisect_right(ends, at)
        inside = place < len(steps) and at >= steps[place].end - steps[place].wall_s
        places.append(place if inside else None)
    return places


def _rate(item: Invocations, timeline: Timeline) -> float | None:
    steps = _whole_steps(timeline, [item], item.process)
    wall_s = sum(step.wall_s for step in steps)
    counted = zip(_places(item, steps), item.samples_at, strict=False)
    samples = sum(count or 0 for place, count in counted if place is not None)
    return samples / wall_s if samples and wall_s > 0.0 else None


def _total(of: Iterable[tuple[int | None, int]]) -> int | None:
    total = 0
    for one, count in of:
        if one is None:
            return None
        total += one * count
    return total
