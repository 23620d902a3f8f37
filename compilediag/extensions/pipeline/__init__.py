"""Capacities of the two sides of a producer-consumer loop, and its bottleneck (CD308).

Capacities leave out the stage runs in which something compiled, and waiting is judged from the end
of the first training step on: filling the pipeline is no bottleneck.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from statistics import median
from typing import Literal

from compilediag.diagnosis.findings import Finding, Rule
from compilediag.receipt.schema.tracked import PipelineRecord, PipelineSection, PoolSizes
from compilediag.rules.make_finding import make_finding, pick
from compilediag.timeline.recorded import PipelineLoop, StageRun
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire.user_events import (
    INFER,
    TRAIN,
    WAIT,
    compute_infer_capacity,
    compute_rate,
    resolve_slots,
)

Bottleneck = Literal["inference", "training", "dispatch", "balanced"]

WAIT_SHARE = 0.1
"""Training is starved when it waits for at least this share of its time."""

APART = 1.1
"""Two capacities differ when one is this many times the other."""

GROWN = 1.5
"""A pool grows when its later sizes are this many times the earlier, and a training step more."""

MIN_COUNT = 3
"""Training steps, and sizes of the pool in each third of the run, that are enough to judge."""


def build_pipeline_section(timeline: Timeline) -> PipelineSection | None:
    """Build the section of the loops; None when the program measured no loop."""
    loops = tuple(figures for figures, _ in list_pipelines(timeline))
    return PipelineSection(loops=loops) if loops else None


def list_pipelines(timeline: Timeline) -> tuple[tuple[PipelineRecord, float | None], ...]:
    """List the loops of the lead process, else of the first process that has any; each with the
    seconds that training waited after its first step."""
    if not timeline.pipelines:
        return ()
    lead = timeline.lead
    processes = [loop.process for loop in timeline.pipelines]
    shown = lead if lead in processes else min(processes, default=lead)
    compiling = [
        (event.t - event.seconds, event.t) for event in timeline.compiles if event.process == shown
    ]
    return tuple(
        (compute_figures(loop, compiling), _measure_starvation(loop)[0])
        for loop in timeline.pipelines
        if loop.process == shown
    )


def compute_figures(
    loop: PipelineLoop, compiling: Sequence[tuple[float, float]] = ()
) -> PipelineRecord:
    """Compute the figures of one loop; `compiling`: begin and end of compiles, in seconds."""
    train, infer, waits = (_select_stage(loop, stage) for stage in (TRAIN, INFER, WAIT))
    t_usual, i_usual = _select_usual(train, compiling), _select_usual(infer, compiling)
    calls = [(run.start, run.end) for run in infer]
    named = len({run.slot for run in infer if run.slot >= 0})
    slots = resolve_slots(loop.slots, named, calls) if infer or loop.slots else None
    trained, share = _count_samples(train), _measure_starvation(loop)[1]
    elapsed_s, pool = 0.0, None
    if train:
        elapsed_s = max(run.end for run in train) - min(run.start for run in loop.stages)
    if sizes := [size for _, size in loop.pool]:
        third = len(sizes) // 3
        enough = third >= MIN_COUNT
        pool = PoolSizes(
            median=median(sizes),
            max=max(sizes),
            last=sizes[-1],
            early=median(sizes[:third]) if enough else None,
            late=median(sizes[-third:]) if enough else None,
        )
    t_rate = compute_rate(_count_samples(t_usual), _sum_working_s(t_usual, waits))
    i_rate = compute_infer_capacity(_count_samples(i_usual), _sum_wall_s(i_usual), slots or 0)
    return PipelineRecord(
        name=loop.name,
        trained=trained,
        inferred=_count_samples(infer),
        throughput=compute_rate(trained, elapsed_s),
        train_capacity=t_rate,
        infer_capacity=i_rate,
        infer_call_s=_sum_wall_s(i_usual) / len(i_usual) if i_usual else None,
        slots=slots,
        dispatch_wait_s=_sum_wall_s(waits) if waits else None,
        wait_share=share,
        train_steps=len(train),
        pool=pool,
        bottleneck=_find_bottleneck(train, share, pool, t_rate, i_rate),
    )


def _find_bottleneck(
    train: Sequence[StageRun],
    share: float | None,
    pool: PoolSizes | None,
    train_rate: float | None,
    infer_rate: float | None,
) -> Bottleneck | None:
    """Find the bottleneck: starved training is inference too slow, or samples that do not get to
    it; a pool that grows is training too slow; else the capacities decide."""
    if len(train) < MIN_COUNT:
        return None
    ratio = None if train_rate is None or infer_rate is None else infer_rate / train_rate
    infer_leads = ratio is not None and ratio >= APART
    if share is not None and share >= WAIT_SHARE:
        return "dispatch" if infer_leads else "inference"
    if infer_leads:
        return "training"
    if pool is not None and pool.early is not None and pool.late is not None:
        a_step = _count_samples(train) / len(train)
        if pool.late >= pool.early + a_step and pool.late >= GROWN * pool.early:
            return "training"
    if ratio is None:
        return None
    if ratio * APART > 1.0:
        return "balanced"
    # Training was watched and was not starved: the pool held enough so far.
    return "inference" if share is None else None


def _measure_starvation(loop: PipelineLoop) -> tuple[float | None, float | None]:
    """Measure seconds waited after the first training step, and their share of the time since."""
    train, waits = _select_stage(loop, TRAIN), _select_stage(loop, WAIT)
    if not waits or len(train) < MIN_COUNT:
        return None, None
    filled = min(run.end for run in train)
    waited_s = _sum_wall_s([run for run in waits if run.start >= filled])
    worked_s = _sum_working_s([run for run in train if run.start >= filled], waits)
    total_s = waited_s + worked_s
    return waited_s, waited_s / total_s if total_s > 0.0 else None


def _sum_working_s(train: Sequence[StageRun], waits: Sequence[StageRun]) -> float:
    """Sum training seconds without the waits that lie inside a step, in its thread."""
    steps: dict[int, list[StageRun]] = {}
    for step in sorted(train, key=attrgetter("start")):
        steps.setdefault(step.thread, []).append(step)
    inside_s = 0.0
    for wait in waits:
        own = steps.get(wait.thread, [])
        index = bisect_right(own, wait.start, key=attrgetter("start")) - 1
        if index >= 0 and wait.end <= own[index].end:
            inside_s += wait.wall_s
    return _sum_wall_s(train) - inside_s


def _select_usual(
    work: Sequence[StageRun], compiling: Sequence[tuple[float, float]]
) -> Sequence[StageRun]:
    """Select the stage runs in which nothing compiled, or all where there are no others."""
    usual = [
        run
        for run in work
        if not any(began < run.end and run.start < ended for began, ended in compiling)
    ]
    return usual or work


def _select_stage(loop: PipelineLoop, stage: str) -> list[StageRun]:
    return [run for run in loop.stages if run.stage == stage]


def _count_samples(work: Sequence[StageRun]) -> int:
    return sum(run.samples for run in work)


def _sum_wall_s(work: Sequence[StageRun]) -> float:
    return sum(run.wall_s for run in work)


_MUCH = 2.0
"""One of data and compute is where training's time goes when it takes this many times the other."""

_FIXES = {
    "inference": "give inference more slots or larger batches, or train less often",
    "dispatch": "look between the two: idle slots, the transfer of samples, how many the pool must "
    "hold before a batch is dispatched",
}
_TRAINING_FIXES = {
    "data": "shorten the training step where it waits for data: transfer, collation, loading",
    "compute": "shorten the training step's own work; more inference would only fill the pool",
    None: "shorten the training step; more inference would only fill the pool",
}
_TITLES = {
    "inference": "inference is the bottleneck",
    "dispatch": "samples are late though inference is fast enough",
    "training": "training is the bottleneck",
}


def find_pipeline_bottleneck(timeline: Timeline) -> Iterable[Finding]:
    """Find CD308: training that waits for samples is a warning; a trainer that is always busy is
    information. A balanced loop has no finding."""
    for figures, starved_s in list_pipelines(timeline):
        side = figures.bottleneck
        if side not in _TITLES:
            continue
        inside = _find_training_limit(timeline) if side == "training" else None
        starved = side != "training" and starved_s is not None
        share = None if side == "training" else figures.wait_share
        details = "" if share is None else f": training waits {share:.0%}"
        if figures.infer_capacity is not None and figures.train_capacity is not None:
            details += f" (I={figures.infer_capacity:.4g}/s, T={figures.train_capacity:.4g}/s)"
        yield make_finding(
            timeline,
            "CD308",
            f"{_TITLES[side]}{details}",
            _FIXES[side] if side in _FIXES else _TRAINING_FIXES[inside],
            variable=figures.name,
            severity="warning" if starved else "info",
            cost_s=starved_s if starved else None,
            evidence={
                "bottleneck": side,
                **pick(figures, "train_capacity", "infer_capacity", "wait_share", "slots"),
                "inside_training": inside,
            },
        )


def _find_training_limit(timeline: Timeline) -> str | None:
    """Find where the steps' time goes: "data", "compute"; None where it is neither or unknown."""
    lead = timeline.lead
    data_s = compute_s = 0.0
    for step in timeline.steps:
        if step.process == lead and not step.unsampled:
            data_s += step.data_wait_s or 0.0
            compute_s += (step.forward_s or 0.0) + (step.backward_s or 0.0)
            compute_s += step.optimizer_s or 0.0
    if data_s > _MUCH * compute_s:
        return "data"
    return "compute" if compute_s > _MUCH * data_s else None


RULES: tuple[Rule, ...] = (find_pipeline_bottleneck,)
