"""The tracked and ablations sections of a receipt."""

from __future__ import annotations

from compilediag.receipt.schema.receipt import Artifact
from compilediag.receipt.schema.tracked import AblationRecord, MetricRecord, TrackedRecord
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import RunTracked, plain

MOST_RUNS = 200
"""Tracked runs listed in one receipt; `completeness.reasons` tells of the others."""

MOST_REPORTS = 200


def tracked_section(timeline: Timeline) -> tuple[TrackedRecord, ...]:
    """Runs of the lead process, else of the first that has any: the newest that were told."""
    return tuple(_record(run) for run in _runs(timeline)[-MOST_RUNS:])


def tracked_left_out(timeline: Timeline) -> str | None:
    """What is not listed, as a sentence."""
    if not timeline.tracked and not timeline.tracked_left_out:
        return None
    left_out = max(len(_runs(timeline)) - MOST_RUNS, 0) + timeline.tracked_left_out
    return f"tracked: {left_out} more runs are not listed" if left_out else None


def _runs(timeline: Timeline) -> list[RunTracked]:
    lead = timeline.lead
    processes = [item.process for item in timeline.tracked]
    told = lead if lead in processes else min(processes, default=lead)
    return [item.run for item in timeline.tracked if item.process == told]


def _record(run: RunTracked) -> TrackedRecord:
    return TrackedRecord(
        name=run.name,
        config=plain(run.config),
        state=run.state,
        steps=run.steps,
        first_step=run.first_step,
        last_step=run.last_step,
        wall_s=run.wall_s,
        steps_s=run.steps_s,
        warmup=run.warmup,
        peak_bytes=run.peak_bytes,
        peak_at_start_bytes=run.peak_at_start_bytes,
        peak_source=run.peak_source,
        totals=dict(run.totals),
        per_s=dict(run.per_s),
        metrics=tuple(
            MetricRecord(
                name=item.name,
                count=item.count,
                mean=item.mean,
                median=item.median,
                min=item.min,
                max=item.max,
                last=item.last,
                median_of=item.median_of or None,
                not_finite=item.not_finite,
            )
            for item in run.metrics
        ),
        left_out=run.left_out,
    )


def ablations_section(timeline: Timeline) -> tuple[AblationRecord, ...]:
    """The reports of all processes; of files written twice the last."""
    last = {item.uri: item for item in timeline.ablations}
    return tuple(
        AblationRecord(
            name=item.name,
            architecture=item.architecture,
            depth=item.depth,
            steps=item.steps,
            curves=item.curves,
            layers=item.layers,
            baseline=item.baseline,
            uri=item.uri,
        )
        for item in list(last.values())[-MOST_REPORTS:]
    )


def ablation_artifacts(timeline: Timeline) -> tuple[Artifact, ...]:
    """The files of these reports, as links."""
    last = {item.uri: item for item in timeline.ablations}
    return tuple(
        Artifact(
            role="ablation",
            uri=item.uri,
            media_type="application/json",
            bytes=item.bytes,
            sha256=item.sha256,
        )
        for item in list(last.values())[-MOST_REPORTS:]
    )
