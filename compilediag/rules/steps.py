"""Rules about steps beside compiled code: synchronisations in loops (CD301), compiles in steps that
should be steady, or in a stretch that the program times (CD302), spans that claim to be the model's
time and hold something else (CD303), and waiting for data (CD307). All of the
lead process."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from statistics import median

from compilediag.diagnosis.figures.goodput import CATEGORY_OF, MAIN_THREAD
from compilediag.diagnosis.findings import Finding
from compilediag.rules.make_finding import format_count, make_finding, pick
from compilediag.timeline.devices import SyncLine, group_reads_by_line
from compilediag.timeline.timeline import Compile, SampledStep, Timeline, select_spans
from compilediag_harness.wire import Location, SpanEnded

# --- CD301 --------------------------------------------------------------------------------------

MIN_READS = 16
"""Reads in one step and one loop from which on they are a finding. A loss and a few metrics in each
step are what everybody reads."""

MIN_READS_ON_HOST = 64
"""The same where no tensor is on a device: nobody knows which of them would be, and a batch is
often put together on the host."""

AS_WRITTEN = {
    "item": ".item()",
    "tolist": ".tolist()",
    "bool": "bool()",
    "float": "float()",
    "int": "int()",
    "index": "use as an index",
    "cpu": ".cpu()",
    "to_cpu": '.to("cpu")',
    "nonzero": ".nonzero()",
}
"""Kinds of reads as the user writes them."""


def _select_samples(timeline: Timeline) -> tuple[list[SampledStep], bool, int]:
    """Select the sampled steps, whether tensors are on a device in any, and the reads in one of
    them from which on they are a finding."""
    samples = [sample for sample in timeline.syncs if sample.process == timeline.lead]
    on_device = any(sample.on_device for sample in samples)
    return samples, on_device, MIN_READS if on_device else MIN_READS_ON_HOST


def find_sync_loops(timeline: Timeline) -> Iterable[Finding]:
    """CD301: loops in which each of many reads of a tensor makes the host wait for the device."""
    samples, on_device, least = _select_samples(timeline)
    loops: dict[Location, list[SyncLine]] = {}
    for line in group_reads_by_line(samples):
        loops.setdefault(_find_loop_head(line.place, line.loop), []).append(line)
    for head, lines in loops.items():
        reads = max(
            sum(
                site.count
                for site in sample.sites
                if _find_loop_head(site.place, site.loop) == head
            )
            for sample in samples
        )
        if reads < least:
            continue
        looped = any(line.loop is not None for line in lines)
        what = " and ".join(dict.fromkeys(AS_WRITTEN.get(line.kind, line.kind) for line in lines))
        title = f"{reads} synchronisations in a step{' in a loop' if looped else ''}: {what}"
        finding = make_finding(
            timeline,
            "CD301",
            title if on_device else f"{title}; each would wait for a GPU",
            "read all values at once before the loop (`.tolist()`, `.cpu()`), or stay in tensor "
            "operations",
            caveat=None
            if on_device
            else "costs nothing on a CPU: tensors that stay there need no change",
            location=head,
            count=sum(line.count for line in lines),
            steps=(step for line in lines for step in line.steps),
            evidence={
                "most_in_a_step": reads,
                "sampled_steps": len(samples),
                "on_device": on_device,
                "complete": all(sample.complete for sample in samples),
                "lines": [
                    {**asdict(line.place), **pick(line, "kind", "count", "seconds")}
                    for line in lines
                ],
            },
        )
        if finding.ownership != "torch":
            yield finding


def _find_loop_head(line: Location, loop: int | None) -> Location:
    """Find the head of the loop that a line is in; the line itself, where no loop is known."""
    return Location(line.file, loop or line.line, line.function)


# --- CD302 --------------------------------------------------------------------------------------

STEADY = 8
"""Steps without a compile after which a program is steady."""

TIMED = frozenset({"timed", "timing", "benchmark", "bench", "measure", "measured", "measurement"})
"""Spans of these names claim to measure steady work."""

_NO_STEADY_WORK = frozenset({"eval", "checkpoint", "startup", "warmup", "compile"})
"""Categories of spans in which a compile makes no step of the training slow."""


def find_compiles_in_steady_state(timeline: Timeline) -> Iterable[Finding]:
    """CD302: each frame that was first compiled in a steady step, and each recompile there, which
    is a symptom of the finding that names its cause. In tests, which begin anew, none is steady."""
    own = [e for e in timeline.compiles if e.process == timeline.lead and not e.test]
    busy = sorted({event.step for event in own})
    if len(busy) < 2:
        return  # no compile has a quiet step before it
    apart = [
        span
        for span in _list_main_spans(timeline)
        if span.name in TIMED or CATEGORY_OF.get(span.name, span.name) in _NO_STEADY_WORK
    ]
    for event in own:
        index = bisect_left(busy, event.step)
        quiet = event.step - busy[index - 1] - 1 if index else 0
        if not event.guarded or quiet < STEADY or _is_inside(event, apart):
            continue
        if event.recompile is not None:
            title = f"recompile after {quiet} quiet steps"
            yield _make_late_finding(timeline, [event], title, is_symptom=True)
        elif event.kind == "first":
            title = f"{event.frame.function} was first compiled after {quiet} quiet steps"
            yield _make_late_finding(timeline, [event], title)


def find_compiles_in_timed_spans(timeline: Timeline) -> Iterable[Finding]:
    """CD302: the compiles inside spans whose name claims that they measure."""
    own = [row for row in timeline.compiles if row.process == timeline.lead]
    by_span: dict[str, list[Compile]] = {}
    for span in _list_main_spans(timeline):
        if span.name in TIMED:
            by_span.setdefault(span.name, []).extend(row for row in own if _is_inside(row, [span]))
    for name, compiles in by_span.items():
        if compiles:
            times = format_count(len(compiles), "time")
            yield _make_late_finding(
                timeline, compiles, f"torch compiled {times} inside the timed span `{name}`", name
            )


def _list_main_spans(timeline: Timeline) -> list[SpanEnded]:
    return [span for span in select_spans(timeline, timeline.lead) if span.thread == MAIN_THREAD]


def _is_inside(event: Compile, spans: Sequence[SpanEnded]) -> bool:
    middle = event.t - event.seconds / 2
    return any(span.start <= middle <= span.start + span.wall_s for span in spans)


def _make_late_finding(
    timeline: Timeline,
    compiles: Sequence[Compile],
    title: str,
    span: str | None = None,
    *,
    is_symptom: bool = False,
) -> Finding:
    return make_finding(
        timeline,
        "CD302",
        title,
        "call what is compiled there once during warm-up, with the inputs it will get",
        variable=span,
        location=compiles[0].frame,
        severity="info" if is_symptom else None,
        count=len(compiles),
        steps=(event.step for event in compiles),
        # The cost of a recompile stands at the finding that names its cause.
        cost_s=None if is_symptom else sum(event.seconds for event in compiles),
        evidence={
            "compile_ids": [event.compile_id for event in compiles],
            "kinds": sorted({event.kind for event in compiles}),
            "span": span,
        },
    )


# --- CD303 --------------------------------------------------------------------------------------

_MODEL_NAME = re.compile(
    r"(?:(?:^|.*[^a-z])(?:forward|inference)|model)(?:[^a-z]*(?:pass|time|ms))?", re.IGNORECASE
)


def is_model_time(name: str) -> bool:
    """True where a span is named as the model's time: "forward", "lens_forward"."""
    return _MODEL_NAME.fullmatch(name) is not None


def find_reads_in_model_time(timeline: Timeline) -> Iterable[Finding]:
    """CD303: spans of the model's time with many reads of tensors in one sampled step."""
    samples, _, least = _select_samples(timeline)
    names = {name for row in samples for site in row.sites for name in site.spans}
    for name in sorted(filter(is_model_time, names)):
        reads = max(sum(site.count for site in row.sites if name in site.spans) for row in samples)
        if reads < least:
            continue
        lines = group_reads_by_line(samples, lambda site, name=name: name in site.spans)
        yield make_finding(
            timeline,
            "CD303",
            f"the time of `{name}` holds {reads} reads of tensors in a step, not only the model",
            "put the span around the call of the model alone, and the bookkeeping in one of its "
            "own",
            variable=name,
            location=lines[0].place,
            count=sum(line.count for line in lines),
            steps=(step for line in lines for step in line.steps),
            evidence={
                "span": name,
                "reads_in_a_step": reads,
                "sampled_steps": len(samples),
                "lines": [
                    {**pick(line.place, "file", "line"), "kind": line.kind} for line in lines
                ],
            },
        )


# --- CD307 --------------------------------------------------------------------------------------

WAITING = 0.5
"""Part of the usual step that must be waiting."""

MIN_STEPS = 8
"""Steps without a compile below which nothing is reported."""


def find_data_bound_steps(timeline: Timeline) -> Iterable[Finding]:
    """CD307: judged by medians, over the steps in which nothing compiled."""
    steps = [
        (step.data_wait_s, step.wall_s)
        for step in timeline.steps
        if step.process == timeline.lead
        and step.data_wait_s is not None
        and step.compile_s == 0.0
        and math.isfinite(step.wall_s)
    ]
    if len(steps) < MIN_STEPS:
        return
    waits, walls = zip(*steps, strict=True)
    wait_s, wall_s = median(waits), median(walls)
    if wall_s <= 0.0 or wait_s < WAITING * wall_s:
        return
    yield make_finding(
        timeline,
        "CD307",
        f"{wait_s / wall_s:.0%} of the usual step is waiting for data",
        "load batches in other processes (`num_workers`), and move work out of the dataset",
        caveat="each worker holds a copy of the dataset and takes a core",
        count=len(steps),
        cost_s=sum(waits),
        evidence={
            "share": wait_s / wall_s,
            "usual_wait_s": wait_s,
            "usual_step_s": wall_s,
            "steps": len(steps),
        },
    )
