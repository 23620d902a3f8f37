"""Training that waits: a step for its batch (CD307), one side of a producer-consumer loop for the
other (CD308)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median

from compilediag.diagnosis.figures.pipelines import pipelines_of
from compilediag.diagnosis.findings import Finding, Rule
from compilediag.receipt.schema.tracked import PipelineRecord
from compilediag.rules.make_finding import make_finding, pick
from compilediag.timeline.timeline import Timeline

MIN_SHARE = 0.5
"""Part of the usual step that must be waiting."""

MIN_STEPS = 8
"""Steps without a compile below which nothing is reported."""


def find_data_bound_steps(timeline: Timeline) -> Iterable[Finding]:
    """CD307: judged by medians, over the steps of the lead process in which nothing compiled."""
    lead = timeline.lead
    steps = [
        (step.data_wait_s, step.wall_s)
        for step in timeline.steps
        if step.process == lead
        and step.data_wait_s is not None
        and step.compile_s == 0.0
        and math.isfinite(step.wall_s)
    ]
    if len(steps) < MIN_STEPS:
        return
    waits, walls = zip(*steps, strict=True)
    wait_s, wall_s = median(waits), median(walls)
    if wall_s <= 0.0 or wait_s < MIN_SHARE * wall_s:
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


def pipeline_bottleneck(timeline: Timeline) -> Iterable[Finding]:
    """CD308: training that waits for samples is a warning; a trainer that is always busy is
    information. A balanced loop has no finding."""
    for figures, starved_s in pipelines_of(timeline):
        side = figures.bottleneck
        if side not in _TITLES:
            continue
        inside = _inside_training(timeline) if side == "training" else None
        starved = side != "training" and starved_s is not None
        share = None if side == "training" else figures.wait_share
        waiting = "" if share is None else f": training waits {share:.0%}"
        yield make_finding(
            timeline,
            "CD308",
            f"{_TITLES[side]}{waiting}{_capacities(figures)}",
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


def _capacities(figures: PipelineRecord) -> str:
    if figures.infer_capacity is None or figures.train_capacity is None:
        return ""
    return f" (I={figures.infer_capacity:.4g}/s, T={figures.train_capacity:.4g}/s)"


def _inside_training(timeline: Timeline) -> str | None:
    """Where the steps' time goes: "data", "compute", or None where it is neither or not known."""
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


RULES: tuple[Rule, ...] = (find_data_bound_steps, pipeline_bottleneck)
