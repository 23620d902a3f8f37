"""Which side of a producer-consumer loop is the bottleneck (CD308)."""

from __future__ import annotations

from collections.abc import Iterable

from compilediag.diagnosis.codes import info
from compilediag.diagnosis.figures.pipelines import PipelineFigures, pipelines_of
from compilediag.diagnosis.findings import Finding, Fix, Rule, Severity
from compilediag.timeline.timeline import Timeline

_MUCH = 2.0
"""One of data and compute is where training's time goes when it takes this many times the other."""

_FIX = {
    "inference": "give inference more slots or larger batches, or train less often",
    "dispatch": "look between the two: idle slots, the transfer of samples, how many the pool must "
    "hold before a batch is dispatched",
}
_TRAINING_FIX = {
    "data": "shorten the training step where it waits for data: transfer, collation, loading",
    "compute": "shorten the training step's own work; more inference would only fill the pool",
    None: "shorten the training step; more inference would only fill the pool",
}


def pipeline_bottleneck(timeline: Timeline) -> Iterable[Finding]:
    """CD308: training that waits for samples is a warning; a trainer that is always busy is
    information. A balanced loop has no finding."""
    for figures in pipelines_of(timeline):
        if figures.bottleneck in ("inference", "dispatch", "training"):
            yield _finding(figures, _inside_training(timeline))


def _finding(figures: PipelineFigures, inside: str | None) -> Finding:
    register = info("CD308")
    side = str(figures.bottleneck)
    starved = side != "training" and figures.starved_s is not None
    severity: Severity = "warning" if starved else "info"
    return Finding(
        rule="CD308",
        slug=register.slug,
        severity=severity,
        confidence="exact",
        family=register.family,
        variable=figures.name,
        title=_title(figures, side),
        location=None,
        ownership="user",
        count=1,
        steps=(),
        cost_s=figures.starved_s if starved else None,
        fix=Fix(_FIX[side] if side in _FIX else _TRAINING_FIX[inside], register.how),
        evidence={
            "bottleneck": side,
            "train_capacity": figures.train_capacity,
            "infer_capacity": figures.infer_capacity,
            "wait_share": figures.wait_share,
            "slots": figures.slots,
            "inside_training": inside if side == "training" else None,
        },
    )


def _title(figures: PipelineFigures, side: str) -> str:
    if side == "training":
        return f"training is the bottleneck{_capacities(figures)}"
    share = "" if figures.wait_share is None else f": training waits {figures.wait_share:.0%}"
    if side == "dispatch":
        return f"samples are late though inference is fast enough{share}{_capacities(figures)}"
    return f"inference is the bottleneck{share}{_capacities(figures)}"


def _capacities(figures: PipelineFigures) -> str:
    if figures.infer_capacity is None or figures.train_capacity is None:
        return ""
    return f" (I={figures.infer_capacity:.4g}/s, T={figures.train_capacity:.4g}/s)"


def _inside_training(timeline: Timeline) -> str | None:
    """Where the steps' time goes: "data", "compute", or None where it is neither or not known."""
    process = timeline.lead
    data_s = compute_s = 0.0
    for step in timeline.steps:
        if step.process == process and not step.unsampled:
            data_s += step.data_wait_s or 0.0
            compute_s += sum(
                (step.forward_s or 0.0, step.backward_s or 0.0, step.optimizer_s or 0.0)
            )
    if data_s > _MUCH * compute_s:
        return "data"
    return "compute" if compute_s > _MUCH * data_s else None


RULES: tuple[Rule, ...] = (pipeline_bottleneck,)
