"""The steps, goodput, memory, CUDA-graph, overhead and checks sections of a receipt."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from compilediag.findings import Finding
from compilediag.goodput import MAIN_THREAD, SPELLINGS, account
from compilediag.lead_process import lead_process, ranks_present
from compilediag.receipt.identity_part import process_at, ranks_expected
from compilediag.receipt.parts.running import (
    CudagraphSection,
    GoodputSection,
    MemorySection,
    Overhead,
    Phases,
    SketchRecord,
    Spike,
    StepsSection,
)
from compilediag.receipt.run_facts import RunFacts
from compilediag.receipt.schema import Checks
from compilediag.step_stats import RELATIVE_ERROR, Sketch, figures_of, spike_positions, warmup_of
from compilediag.timeline import Step, Timeline

_OUT_OF_MEMORY = re.compile(
    r"OutOfMemoryError|\bMemoryError\b|out of memory|DefaultCPUAllocator: can't allocate|oom-kill",
    re.IGNORECASE,
)


def steps_section(
    timeline: Timeline, findings: Sequence[Finding], run: RunFacts
) -> StepsSection | None:
    """Step times of the lead process; None when no step was seen."""
    process = lead_process(timeline)
    steps = [
        step for step in timeline.steps if step.process == process and math.isfinite(step.wall_s)
    ]
    figures = figures_of([step.wall_s for step in steps])
    if figures is None:
        return None
    walls = [step.wall_s for step in steps]
    warmup = run.warmup if run.warmup is not None else _warmup(timeline, steps, process)
    return StepsSection(
        count=figures.count,
        warmup=warmup,
        clock="monotonic",
        mean=figures.mean,
        median=figures.median,
        min=figures.min,
        max=figures.max,
        p90=figures.p90,
        p99=figures.p99,
        sketch=SketchRecord(
            kind="log-linear", relative_error=RELATIVE_ERROR, buckets=Sketch.of(walls).spelled()
        ),
        phases=_phases(steps),
        spikes=tuple(
            _spike(steps[place], timeline, findings) for place in spike_positions(walls, warmup)
        ),
    )


def _warmup(timeline: Timeline, steps: Sequence[Step], process: int) -> int:
    first = frozenset(
        item.step for item in timeline.compiles if item.process == process and item.kind == "first"
    )
    return warmup_of([step.number for step in steps], first)


def _phases(steps: Sequence[Step]) -> Phases:
    """Forward and backward are not told apart on the host: their time is in `rest`."""
    data_wait = _measured(step.data_wait_s for step in steps)
    optimizer = _measured(step.optimizer_s for step in steps)
    spans = _measured(step.spans_s for step in steps)
    wall = sum(step.wall_s for step in steps)
    rest = max(0.0, wall - (data_wait or 0.0) - (optimizer or 0.0) - (spans or 0.0))
    return Phases(data_wait=data_wait, optimizer=optimizer, spans=spans, rest=rest)


def _measured(seconds: Iterable[float | None]) -> float | None:
    """The sum of what was measured; None when nothing was."""
    known = [value for value in seconds if value is not None]
    return sum(known) if known else None


def _spike(step: Step, timeline: Timeline, findings: Sequence[Finding]) -> Spike:
    return Spike(
        step=step.number,
        wall_s=step.wall_s,
        compile_s=step.compile_s,
        metric_s=_metric_s(step, timeline),
        sync_s=None,
        why=_why(step, findings),
    )


def _metric_s(step: Step, timeline: Timeline) -> float | None:
    """Seconds of the outermost "metrics" spans in the step; None where spans are not told apart."""
    owners = timeline.span_processes or (step.process,) * len(timeline.spans)
    return sum(
        span.wall_s
        for span, owner in zip(timeline.spans, owners, strict=True)
        if owner == step.process
        and span.step == step.number
        and span.depth == 0
        and span.thread == MAIN_THREAD
        and SPELLINGS.get(span.name, span.name) == "metrics"
    )


def _why(step: Step, findings: Sequence[Finding]) -> str | None:
    """The finding that cost most among those that hit this step and cost anything."""
    there = [item for item in findings if step.number in item.steps and item.cost_s and item.id]
    if not there or not step.compile_s:
        return None
    return max(there, key=lambda item: item.cost_s or 0.0).id


def goodput_section(timeline: Timeline, run: RunFacts) -> GoodputSection | None:
    """Wall time taken apart; None when there was neither a wall time nor an event."""
    ended = process_at(timeline, lead_process(timeline))
    orderly = run.status == "complete" or (ended is not None and ended.ended is not None)
    found = account(timeline, run.wall_s, orderly=orderly)
    if found is None:
        return None
    unseen = _unseen(timeline, run)
    return GoodputSection(
        wall_s=found.wall_ns / 1e9,
        goodput_s=None if found.goodput_ns is None else found.goodput_ns / 1e9,
        badput_s={
            name: None if taken is None or (not taken and name in unseen) else taken / 1e9
            for name, taken in found.badput_ns.items()
        },
        fraction=found.fraction,
    )


def _unseen(timeline: Timeline, run: RunFacts) -> set[str]:
    """Categories that may hold time nobody measured: zero there would be a claim."""
    unseen = {"cudagraph_capture"} if _has_gpu(timeline) is not False else set[str]()
    # Progress lost to a restart is known to be none only in a first attempt.
    return unseen | {"wasted"} if run.attempt > 1 else unseen


def memory_section(timeline: Timeline) -> MemorySection:
    """The highest host peak of any process; device counters are not collected yet."""
    peaks = [
        process.ended.host_peak_bytes
        for process in timeline.processes
        if process.ended is not None and process.ended.host_peak_bytes is not None
    ]
    without_gpu = _has_gpu(timeline) is False
    return MemorySection(
        host_peak_bytes=max(peaks, default=None), devices=() if without_gpu else None
    )


def cudagraph_section(timeline: Timeline) -> CudagraphSection:
    """Not applicable without a CUDA device; otherwise not measured yet."""
    return CudagraphSection(applicable=_has_gpu(timeline))


def _has_gpu(timeline: Timeline) -> bool | None:
    lead = process_at(timeline, lead_process(timeline))
    if lead is None or "gpus" not in lead.facts:
        return None
    return bool(lead.facts["gpus"])


def overhead_of(timeline: Timeline, run: RunFacts) -> Overhead:
    """What measuring cost: seconds of the lead process, records of all."""
    ends = [process.ended for process in timeline.processes if process.ended is not None]
    lead = process_at(timeline, lead_process(timeline))
    lead_end = lead.ended if lead is not None else None
    return Overhead(
        collector_s=lead_end.collector_s if lead_end is not None else None,
        bytes_written=run.bytes_written,
        records_dropped=sum(end.records_dropped for end in ends) if ends else None,
    )


def checks_of(timeline: Timeline, run: RunFacts) -> Checks:
    """Yes or no, or None where nothing was observed. Losses are not observed yet."""
    expected = ranks_expected(timeline, run)
    return Checks(
        exit_code_zero=None if run.exit_code is None else run.exit_code == 0,
        steps_present=bool(timeline.steps),
        losses_finite=None,
        no_oom=_no_oom(timeline, run),
        evidence_complete=evidence_complete(timeline, run),
        all_ranks_reported=None
        if expected is None
        else set(ranks_present(timeline)) >= set(range(expected)),
    )


def _no_oom(timeline: Timeline, run: RunFacts) -> bool | None:
    """False when the run ended for want of memory; None when killed for a reason nobody knows."""
    told = [run.failure_reason or "", run.log_tail or ""]
    told += [item.ended.failure or "" for item in timeline.processes if item.ended is not None]
    if run.status != "complete" and any(_OUT_OF_MEMORY.search(text) for text in told):
        return False
    return True if run.status == "complete" else None


def evidence_complete(timeline: Timeline, run: RunFacts) -> bool:
    """Nothing was torn, dropped, silenced or cut short in any process that imported torch."""
    journal = run.journal
    whole = journal is None or (not journal.torn_tail and not any(journal.records_lost.values()))
    attached = [process for process in timeline.processes if process.torch is not None]
    ended = all(
        process.ended is not None and process.ended.records_dropped == 0 for process in attached
    )
    silenced = any(process.torch is not None and process.torch.lost for process in attached)
    return whole and bool(attached) and ended and not silenced and not timeline.lost
