"""Figures that the program and its trainer recorded: tracked runs, reports, steps."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from compilediag import extension_points
from compilediag.receipt.schema.invocations import Throughput
from compilediag.receipt.schema.receipt import Artifact
from compilediag.receipt.schema.record import make_record
from compilediag.receipt.schema.running import Allocator, StepsSection
from compilediag.receipt.schema.tracked import (
    AblationRecord,
    MetricRecord,
    PipelineSection,
    TrackedRecord,
)
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import AblationWritten, RunTracked, make_jsonable

_READER = "the output of a trainer"


def get_logged_steps(timeline: Timeline, warmup: int | None) -> StepsSection | None:
    """Get the steps that the trainer printed; None where it printed none, or no number of them."""
    if timeline.train_log is None:
        return None
    point = extension_points.TRAIN_LOG_STEPS
    return extension_points.load(point, _READER)(timeline.train_log, warmup)


def add_logged_throughput(
    measured: Throughput | None, timeline: Timeline, warmup: int | None
) -> Throughput | None:
    """Add the figures the trainer printed to the throughput; what was measured is not replaced."""
    if timeline.train_log is None:
        return measured
    point = extension_points.TRAIN_LOG_THROUGHPUT
    return extension_points.load(point, _READER)(measured, timeline.train_log, warmup)


def get_logged_allocator(timeline: Timeline) -> Allocator:
    """Get the allocator's peaks that the trainer printed, in bytes."""
    if timeline.train_log is None:
        return Allocator()
    peaks = {name: int(peak) for name, peak in timeline.train_log.peaks.items()}
    return msgspec.convert(peaks, Allocator)


def are_logged_losses_finite(timeline: Timeline) -> bool | None:
    """True if all losses that the trainer printed are finite; None where it printed none."""
    log = timeline.train_log
    if log is None or not (log.losses or log.losses_not_finite):
        return None
    return not log.losses_not_finite


def get_logged_counts(timeline: Timeline) -> dict[str, int]:
    """Get the counts of a trainer's output: lines that were read, and those of no use, by name."""
    log = timeline.train_log
    return {} if log is None else {f"train_log_{name}": n for name, n in log.counts.items()}


MAX_RUNS = 200
"""Tracked runs listed in one receipt; `completeness.reasons` counts the others."""

MAX_REPORTS = 200


def build_loops_section(timeline: Timeline) -> PipelineSection | None:
    """Build the section of loops of producers and consumers; None where the program measured none,
    or the extension that judges them is missing."""
    point = extension_points.PIPELINE_SECTION
    if not timeline.pipelines or not extension_points.is_installed(point):
        return None
    return extension_points.load(point, "a loop")(timeline)


def build_tracked_section(timeline: Timeline) -> tuple[TrackedRecord, ...]:
    """Build the section of tracked runs: the newest of the lead process, else of the first one."""
    records: list[TrackedRecord] = []
    for run in _select_runs(timeline)[-MAX_RUNS:]:
        metrics = tuple(
            make_record(MetricRecord, metric, median_of=metric.median_of or None)
            for metric in run.metrics
        )
        config = make_jsonable(run.config)
        records.append(make_record(TrackedRecord, run, config=config, metrics=metrics))
    return tuple(records)


def describe_unlisted_runs(timeline: Timeline) -> str | None:
    """Describe how many runs are not listed, as a sentence; None where all are."""
    if not timeline.tracked and not timeline.tracked_left_out:
        return None
    count = max(len(_select_runs(timeline)) - MAX_RUNS, 0) + timeline.tracked_left_out
    return f"tracked: {count} more runs are not listed" if count else None


def _select_runs(timeline: Timeline) -> list[RunTracked]:
    lead = timeline.lead
    processes = [run.process for run in timeline.tracked]
    chosen = lead if lead in processes else min(processes, default=lead)
    return [run for run in timeline.tracked if run.process == chosen]


def build_ablations_section(timeline: Timeline) -> tuple[AblationRecord, ...]:
    """Build the section of ablations: reports of all processes, of files written twice the last."""
    return tuple(make_record(AblationRecord, report) for report in _list_reports(timeline))


def list_ablation_artifacts(timeline: Timeline) -> tuple[Artifact, ...]:
    """List the files of these reports, as links."""
    return tuple(
        make_record(Artifact, report, role="ablation", media_type="application/json")
        for report in _list_reports(timeline)
    )


def _list_reports(timeline: Timeline) -> Sequence[AblationWritten]:
    return list({report.uri: report for report in timeline.ablations}.values())[-MAX_REPORTS:]
