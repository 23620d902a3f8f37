"""Step times: exact figures, a sketch that merges between runs and ranks, phases, seconds of spans,
functions, and what made the long steps long."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median

from msgspec.structs import replace

from compilediag.diagnosis.figures.goodput import CATEGORY_OF, MAIN_THREAD, PRODUCTIVE
from compilediag.diagnosis.findings import Finding
from compilediag.receipt.schema.running import Phases, SketchRecord, Spike, StepsSection, Timing
from compilediag.timeline.timeline import Step, Timeline, select_spans
from compilediag_harness.wire import SpanEnded

MAX_ROWS = 256
"""Most rows: those that took longest."""

OTHER_THREAD = "other thread"


def list_timings(timeline: Timeline) -> tuple[Timing, ...]:
    """List the timings of the lead process by span and function, the longest first."""
    process = timeline.lead
    walls: dict[tuple[str, str | None], list[float]] = {}
    for span in select_spans(timeline, process):
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
    rows += [
        Timing(
            kind="disabled_function",
            name=call.function.function,
            phase=call.phase,
            count=call.count,
            total_s=call.total_s,
            mean_s=call.total_s / call.count if call.count else None,
            max_s=call.longest_s,
            file=call.function.file or None,
            line=call.function.line or None,
        )
        for call in timeline.disabled_calls
        if call.process == process
    ]
    rows.sort(key=lambda row: -(row.total_s or 0.0))
    return tuple(rows[:MAX_ROWS])


# --- spans by step --------------------------------------------------------------------------------


def sum_spans_by_step(timeline: Timeline, process: int) -> dict[int, dict[str, float]]:
    """Sum the spans of the main thread by step: category to seconds; of nested spans the inner has
    its time. A span belongs to the step it ended in; what is the work itself ("forward") is no
    category."""
    grouped: dict[int, list[SpanEnded]] = {}
    for span in select_spans(timeline, process):
        if span.thread == MAIN_THREAD and span.name not in PRODUCTIVE:
            grouped.setdefault(span.step, []).append(span)
    seconds_by_step: dict[int, dict[str, float]] = {}
    for step, spans in grouped.items():
        seconds = seconds_by_step[step] = dict[str, float]()
        inside: list[SpanEnded] = []
        for span in sorted(spans, key=lambda ended: (ended.start + ended.wall_s, -ended.start)):
            # What a span has beyond the spans inside it.
            taken = 0.0
            while inside and inside[-1].start >= span.start:
                taken += inside.pop().wall_s
            inside.append(span)
            category = CATEGORY_OF.get(span.name, span.name)
            seconds[category] = seconds.get(category, 0.0) + max(0.0, span.wall_s - taken)
    return seconds_by_step


# Invariant: part of the receipt's format; another number needs another `SketchRecord.kind`.
SUB_BUCKETS = 256
"""Equal-width buckets in each power of two."""

RELATIVE_ERROR = 0.002
"""Bound on |middle of a bucket - value| / value: half a bucket is 1/512 of a power of two."""

SHORTEST_S = 1e-9
"""Shorter durations, zero included, count as this: the clock's resolution."""

SPIKE_RATIO = 2.0
"""A spike takes more than this many times the median step after warm-up."""

MAX_SPIKES = 64


UNEXPLAINED = "unexplained"

SHARE_EXPLAINED = 0.5
"""A cause explains a spike when it takes at least this share of what the step has too much."""

_WHY = {"metrics": "metric", "data_wait": "data"}
"""Categories that have another name as the reason of a spike."""


def build_steps_section(
    timeline: Timeline, findings: Sequence[Finding], warmup: int | None = None
) -> StepsSection | None:
    """Build the section of step times of the lead process; None without a step. `warmup`: steps
    that are warm-up by the user's choice; None: found from the compiles."""
    lead = timeline.lead
    steps = [step for step in timeline.steps if step.process == lead and math.isfinite(step.wall_s)]
    walls = [step.wall_s for step in steps]
    figures = compute_figures(walls)
    if figures is None:
        return None
    if warmup is None:
        warmup = count_warmup_steps(timeline, steps, lead)
    return replace(
        figures,
        warmup=warmup,
        clock="monotonic",
        sketch=build_sketch((wall_s, 1) for wall_s in walls),
        phases=_build_phases(timeline, steps, lead),
        spikes=_build_spikes(timeline, steps, warmup, findings),
    )


def count_warmup_steps(timeline: Timeline, steps: Sequence[Step], process: int) -> int:
    """Count the leading ones of `steps` in which a frame was compiled for the first time."""
    first = {i.step for i in timeline.compiles if i.process == process and i.kind == "first"}
    later = (at for at, step in enumerate(steps) if step.number not in first)
    return next(later, len(steps))


# --- figures --------------------------------------------------------------------------------------


def build_sketch(durations: Iterable[tuple[float, int]]) -> SketchRecord:
    """Count durations, given as (seconds, how often), by log-linear bucket, in order. Sketches of
    parts add up to that of the whole."""
    counts: dict[int, int] = {}
    for value_s, count in durations:
        index = compute_bucket(value_s)
        counts[index] = counts.get(index, 0) + count
    buckets = {str(index): counts[index] for index in sorted(counts)}
    return SketchRecord(kind="log-linear", relative_error=RELATIVE_ERROR, buckets=buckets)


def compute_bucket(value_s: float) -> int:
    """Compute the bucket of a duration: `SUB_BUCKETS` for each power of two, 0 for one at 1 s."""
    mantissa, exponent = math.frexp(max(value_s, SHORTEST_S))
    return (exponent - 1) * SUB_BUCKETS + int((2 * mantissa - 1) * SUB_BUCKETS)


def compute_figures(walls_s: Sequence[float]) -> StepsSection | None:
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
        p90=_get_percentile(ordered, 0.90),
        p99=_get_percentile(ordered, 0.99),
    )


def _get_percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def find_spikes(walls_s: Sequence[float], warmup: int) -> tuple[int, ...]:
    """Find positions of steps after warm-up that stand out, in order; the longest if too many."""
    after = walls_s[warmup:]
    if not after:
        return ()
    bar = SPIKE_RATIO * median(after)
    spikes = [warmup + index for index, wall in enumerate(after) if wall > bar]
    longest = sorted(spikes, key=lambda index: -walls_s[index])[:MAX_SPIKES]
    return tuple(sorted(longest))


# --- phases ----------------------------------------------------------------------------------


def _build_phases(timeline: Timeline, every: Sequence[Step], process: int) -> Phases:
    """Build the phases of the steps that were watched in detail: unknown time of the others is not
    their rest."""
    steps = [step for step in every if not step.unsampled]
    measured: dict[str, float | None] = {
        name: _sum_measured(getattr(step, f"{name}_s") for step in steps)
        for name in ("data_wait", "forward", "backward", "optimizer", "spans")
    }
    known = sum(seconds for seconds in measured.values() if seconds is not None)
    outermost = [
        (span.start, span.start + span.wall_s)
        for span in select_spans(timeline, process)
        if span.name not in PRODUCTIVE and span.depth == 0
    ]
    numbers = {step.number for step in steps}
    compile_s: dict[str, float] = {}
    for attempt in timeline.compiles:
        if attempt.process != process or attempt.step not in numbers:
            continue
        middle = attempt.t - attempt.seconds / 2
        phase = "forward" if attempt.forward else "backward"
        phase = "spans" if any(start <= middle <= end for start, end in outermost) else phase
        phase = phase if measured.get(phase) is not None else "rest"
        compile_s[phase] = compile_s.get(phase, 0.0) + attempt.seconds
    return Phases(
        **measured,
        rest=max(0.0, sum(step.wall_s for step in steps) - known),
        compile_s=compile_s,
        steps=len(steps) if len(steps) < len(every) else None,
        partial={},
    )


def _sum_measured(seconds: Iterable[float | None]) -> float | None:
    """Sum what was measured, in seconds; None when nothing was."""
    known = [value for value in seconds if value is not None]
    return sum(known) if known else None


# --- spikes ----------------------------------------------------------------------------------


def _build_spikes(
    timeline: Timeline, steps: Sequence[Step], warmup: int, findings: Sequence[Finding]
) -> tuple[Spike, ...]:
    walls = [step.wall_s for step in steps]
    positions = find_spikes(walls, warmup)
    if not positions:
        return ()
    usual_s = median(walls[warmup:])
    usual_wait_s = median(step.data_wait_s or 0.0 for step in steps[warmup:])
    spans = sum_spans_by_step(timeline, steps[0].process)
    syncs = {sample.step: sample for sample in timeline.syncs if sample.process == steps[0].process}
    usual_sync_s = median(sample.seconds or 0.0 for sample in syncs.values()) if syncs else 0.0
    spikes: list[Spike] = []
    for position in positions:
        step = steps[position]
        inside = dict(spans.get(step.number, {}))
        sample = syncs.get(step.number)
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
                why=_explain_spike(step, step.wall_s - usual_s, usual_wait_s, inside, findings),
            )
        )
    return tuple(spikes)


def _explain_spike(
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
    there = [
        finding
        for finding in findings
        if step.number in finding.steps and finding.cost_s and finding.id
    ]
    if name == "compile" and there:
        return max(there, key=lambda finding: finding.cost_s or 0.0).id
    return _WHY.get(name, name)
