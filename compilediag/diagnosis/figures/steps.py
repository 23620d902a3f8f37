"""Step times: exact figures, a sketch that merges between runs and ranks, phases and spikes.

Also seconds of spans, functions and hooks by phase, and what made the long steps long.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from msgspec.structs import replace

from compilediag.diagnosis.figures.goodput import CATEGORY_OF, MAIN_THREAD, PRODUCTIVE
from compilediag.diagnosis.findings import Finding
from compilediag.receipt.schema.running import (
    DeviceTiming,
    Phases,
    SketchRecord,
    Spike,
    StepsSection,
    Timing,
)
from compilediag.timeline.timeline import CallsOutside, Step, Timeline, spans_of
from compilediag_harness.wire import Location, SpanEnded

MAX_ROWS = 256
"""Most rows: those that took longest, then those that could not be timed."""

OTHER_THREAD = "other thread"

_RUN_BY_AUTOGRAD = frozenset(
    {"backward_hook", "backward_pre_hook", "tensor_hook", "accumulate_grad_hook"}
)


def timings_of(timeline: Timeline) -> tuple[Timing, ...]:
    """List the timings of the lead process by span, function and hook, the longest first."""
    process = timeline.lead
    walls: dict[tuple[str, str | None], list[float]] = {}
    for span in spans_of(timeline, process):
        phase = span.phase if span.thread == MAIN_THREAD else OTHER_THREAD
        walls.setdefault((span.name, phase), []).append(span.wall_s)
    rows = [
        Timing(
            kind="span",
            name=name,
            phase=phase,
            count=len(taken),
            total_s=sum(taken),
            mean_s=sum(taken) / len(taken),
            max_s=max(taken),
        )
        for (name, phase), taken in walls.items()
    ]
    calls = [item for item in timeline.disabled_calls if item.process == process]
    hooks = [item for item in timeline.hooks if item.process == process]
    of_hooks = {hook.function for hook in hooks if hook.disabled}
    rows += [
        _row(item.function, "disabled_function", item)
        for item in calls
        if item.function not in of_hooks
    ]
    for hook in hooks:
        # Each phase that a disabled hook was called in; one row without figures for another.
        own = [item for item in calls if hook.disabled and item.function == hook.function]
        rows += [_row(hook.function, hook.kind, item, target=hook.target) for item in own]
        if not own:
            note = "inside compiled code: not timed"
            if hook.disabled:
                note = "no call of it was seen"
            elif hook.kind in _RUN_BY_AUTOGRAD:
                note = "called by autograd: not timed"
            rows.append(_row(hook.function, hook.kind, target=hook.target, note=note))
    rows.sort(key=lambda row: -(row.total_s or 0.0))
    return tuple(rows[:MAX_ROWS])


def _row(at: Location, kind: str, calls: CallsOutside | None = None, **more: str | None) -> Timing:
    """Make the row of a function, with the figures of its calls."""
    figures: dict[str, Any] = more
    if calls is not None:
        figures |= {"phase": calls.phase, "count": calls.count, "total_s": calls.total_s}
        figures["mean_s"] = calls.total_s / calls.count if calls.count else None
        figures["max_s"] = calls.longest_s
    file, line = at.file or None, at.line or None
    return Timing(kind=kind, name=at.function, file=file, line=line, **figures)


# --- spans by step --------------------------------------------------------------------------------


def by_step(timeline: Timeline, process: int) -> dict[int, dict[str, float]]:
    """Sum the spans of the main thread by step: category to seconds; of nested spans the inner has
    its time. A span belongs to the step it ended in; what is the work itself ("forward") is no
    category."""
    grouped: dict[int, list[SpanEnded]] = {}
    for span in spans_of(timeline, process):
        if span.thread == MAIN_THREAD and span.name not in PRODUCTIVE:
            grouped.setdefault(span.step, []).append(span)
    found: dict[int, dict[str, float]] = {}
    for step, spans in grouped.items():
        seconds = found[step] = dict[str, float]()
        inside: list[SpanEnded] = []
        for span in sorted(spans, key=lambda item: (item.start + item.wall_s, -item.start)):
            # What a span has beyond the spans inside it.
            taken = 0.0
            while inside and inside[-1].start >= span.start:
                taken += inside.pop().wall_s
            inside.append(span)
            category = CATEGORY_OF.get(span.name, span.name)
            seconds[category] = seconds.get(category, 0.0) + max(0.0, span.wall_s - taken)
    return found


# Invariant: part of the receipt's format; another number needs another `SketchRecord.kind`.
SUB_BUCKETS = 256
"""Equal-width buckets in each power of two."""

RELATIVE_ERROR = 0.002
"""Bound on |middle of a bucket - value| / value: half a bucket is 1/512 of a power of two."""

SHORTEST_S = 1e-9
"""Shorter durations, zero included, count as this: the clock's resolution."""

SPIKE_RATIO = 2.0
"""A spike takes more than this many times the median step after warm-up."""

SPIKES_KEPT = 64


UNEXPLAINED = "unexplained"

SHARE_EXPLAINED = 0.5
"""A cause explains a spike when it takes at least this share of what the step has too much."""

_WHY = {"metrics": "metric", "data_wait": "data"}
"""Categories that have another name as the reason of a spike."""


def steps_section(
    timeline: Timeline, findings: Sequence[Finding], warmup: int | None = None
) -> StepsSection | None:
    """Build the section of step times of the lead process; None without a step. `warmup`: steps
    that are warm-up by the user's choice; None: found from the compiles."""
    process = timeline.lead
    steps = [
        step for step in timeline.steps if step.process == process and math.isfinite(step.wall_s)
    ]
    walls = [step.wall_s for step in steps]
    figures = figures_of(walls)
    if figures is None:
        return None
    if warmup is None:  # the leading steps in which some frame was compiled for the first time
        first = {i.step for i in timeline.compiles if i.process == process and i.kind == "first"}
        later = (at for at, step in enumerate(steps) if step.number not in first)
        warmup = next(later, len(steps))
    return replace(
        figures,
        warmup=warmup,
        clock="monotonic",
        sketch=sketch_of((wall_s, 1) for wall_s in walls),
        phases=_phases(timeline, steps, process),
        device_timing=_device_timing(timeline, process),
        spikes=_spikes(timeline, steps, warmup, findings),
    )


# --- figures --------------------------------------------------------------------------------------


def sketch_of(durations: Iterable[tuple[float, int]]) -> SketchRecord:
    """Count durations, given as (seconds, how often), by log-linear bucket, in order. Sketches of
    parts add up to that of the whole."""
    counts: dict[int, int] = {}
    for value_s, count in durations:
        index = bucket_of(value_s)
        counts[index] = counts.get(index, 0) + count
    buckets = {str(index): counts[index] for index in sorted(counts)}
    return SketchRecord(kind="log-linear", relative_error=RELATIVE_ERROR, buckets=buckets)


def bucket_of(value_s: float) -> int:
    """Compute the bucket of a duration: `SUB_BUCKETS` for each power of two, 0 for one at 1 s."""
    mantissa, exponent = math.frexp(max(value_s, SHORTEST_S))
    return (exponent - 1) * SUB_BUCKETS + int((2 * mantissa - 1) * SUB_BUCKETS)


def figures_of(walls_s: Sequence[float]) -> StepsSection | None:
    """Compute count, mean, median, extremes and percentiles (by nearest rank) of all steps, in
    seconds, warm-up included; None without a step."""
    if not walls_s:
        return None
    ordered = sorted(walls_s)
    return StepsSection(
        count=len(ordered),
        mean=fmean(ordered),
        median=median(ordered),
        min=ordered[0],
        max=ordered[-1],
        p90=_nearest_rank(ordered, 0.90),
        p99=_nearest_rank(ordered, 0.99),
    )


def _nearest_rank(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spike_positions(walls_s: Sequence[float], warmup: int) -> tuple[int, ...]:
    """Find the positions of the steps after warm-up that stand out, in order; the longest if too
    many."""
    after = walls_s[warmup:]
    if not after:
        return ()
    bar = SPIKE_RATIO * median(after)
    found = [warmup + index for index, wall in enumerate(after) if wall > bar]
    longest = sorted(found, key=lambda index: -walls_s[index])[:SPIKES_KEPT]
    return tuple(sorted(longest))


# --- phases ----------------------------------------------------------------------------------


def _phases(timeline: Timeline, every: Sequence[Step], process: int) -> Phases:
    """Build the phases of the steps that were watched in detail: unknown time of the others is not
    their rest."""
    steps = [step for step in every if not step.unsampled]
    measured: dict[str, float | None] = {
        name: _measured(getattr(step, f"{name}_s") for step in steps)
        for name in ("data_wait", "forward", "backward", "optimizer", "spans")
    }
    known = sum(seconds for seconds in measured.values() if seconds is not None)
    outermost = [
        (span.start, span.start + span.wall_s)
        for span in spans_of(timeline, process)
        if span.name not in PRODUCTIVE and span.depth == 0
    ]
    numbers = {step.number for step in steps}
    compile_s: dict[str, float] = {}
    for item in timeline.compiles:
        if item.process != process or item.step not in numbers:
            continue
        middle = item.t - item.seconds / 2
        phase = "forward" if item.forward else "backward"
        phase = "spans" if any(start <= middle <= end for start, end in outermost) else phase
        phase = phase if measured.get(phase) is not None else "rest"
        compile_s[phase] = compile_s.get(phase, 0.0) + item.seconds
    return Phases(
        **measured,
        rest=max(0.0, sum(step.wall_s for step in steps) - known),
        compile_s=compile_s,
        steps=len(steps) if len(steps) < len(every) else None,
        partial={
            item.phase: item.missing for item in timeline.partial_phases if item.process == process
        },
    )


def _measured(seconds: Iterable[float | None]) -> float | None:
    """Sum what was measured, in seconds; None when nothing was."""
    known = [value for value in seconds if value is not None]
    return sum(known) if known else None


def _device_timing(timeline: Timeline, process: int) -> DeviceTiming:
    timed = [item for item in timeline.device_steps if item.process == process]
    if not timed:
        return DeviceTiming()
    return DeviceTiming(
        method="cuda_events",
        extra_syncs=0,
        steps=len(timed),
        step_s=sum(item.step_s for item in timed),
        forward_s=_measured(item.forward_s for item in timed),
        backward_s=_measured(item.backward_s for item in timed),
    )


# --- spikes ----------------------------------------------------------------------------------


def _spikes(
    timeline: Timeline, steps: Sequence[Step], warmup: int, findings: Sequence[Finding]
) -> tuple[Spike, ...]:
    walls = [step.wall_s for step in steps]
    positions = spike_positions(walls, warmup)
    if not positions:
        return ()
    usual_s = median(walls[warmup:])
    usual_wait_s = median(step.data_wait_s or 0.0 for step in steps[warmup:])
    spans = by_step(timeline, steps[0].process)
    samples = {item.step: item for item in timeline.syncs if item.process == steps[0].process}
    usual_sync_s = median(item.seconds or 0.0 for item in samples.values()) if samples else 0.0
    spikes: list[Spike] = []
    for position in positions:
        step = steps[position]
        inside = dict(spans.get(step.number, {}))
        sample = samples.get(step.number)
        sync_s = sample.seconds if sample is not None else None
        inside["sync"] = max(0.0, (sync_s or 0.0) - usual_sync_s)
        noting_s = sum(sample.noting_s.values()) if sample is not None else 0.0
        inside["measuring"] = step.measuring_s + noting_s
        spikes.append(
            Spike(
                step=step.number,
                wall_s=step.wall_s,
                compile_s=step.compile_s,
                metric_s=inside.get("metrics", 0.0),
                sync_s=sync_s,
                why=_why(step, step.wall_s - usual_s, usual_wait_s, inside, findings),
            )
        )
    return tuple(spikes)


def _why(
    step: Step,
    excess_s: float,
    usual_wait_s: float,
    inside: Mapping[str, float],
    findings: Sequence[Finding],
) -> str:
    """Name what took most of the time that the step has too much: the id of the finding behind a
    compile, a category of spans, reads of tensors, or waiting for data. A span that holds reads has
    their time too."""
    causes = {**inside, "compile": step.compile_s}
    waited_s = (step.data_wait_s or 0.0) - usual_wait_s
    causes["data_wait"] = max(waited_s, causes.get("data_wait", 0.0))
    name = max(causes, key=lambda cause: causes[cause])
    if causes[name] <= 0.0 or causes[name] < SHARE_EXPLAINED * excess_s:
        return UNEXPLAINED
    # The finding that cost most among those that hit this step and cost anything.
    there = [item for item in findings if step.number in item.steps and item.cost_s and item.id]
    if name == "compile" and there:
        return max(there, key=lambda item: item.cost_s or 0.0).id
    return _WHY.get(name, name)
