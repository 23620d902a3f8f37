"""Telemetry of a supervised run: begun when the target has started, ended when it has ended."""

from __future__ import annotations

import os

import msgspec

from compilediag.runs.supervised.child import ExitInfo
from compilediag.runs.supervised.supervised_run import SupervisedRun
from compilediag.runs.telemetry.experiment_counts import experiment_counts, experiment_note
from compilediag.runs.telemetry.exporter import Exporter, TelemetryReport
from compilediag.runs.telemetry.live_run import RunEnd
from compilediag.runs.telemetry.sinks import sinks_for


def begin(run: SupervisedRun) -> Exporter | TelemetryReport | None:
    """Starts the threads that export the run; None without telemetry.

    The target runs by now: a fault of ours must not leave it alone, and is reported instead.
    """
    settings = run.options.telemetry
    if settings is None:
        return None
    run_id = os.path.basename(run.run_dir)
    try:
        exporter = Exporter(
            run.run_dir,
            sinks_for(settings, run.variables, lane=run.lane_name, run_id=run_id),
            settings.every_s,
            started_unix=run.started_unix,
            secrets=run.secrets,
            metrics_file=settings.experiments,
        )
        exporter.start()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"[:300]
        note = f"telemetry did not begin, by a fault of compilediag: {reason}"
        return TelemetryReport((note,), {})
    return exporter


def end(
    exporter: Exporter | TelemetryReport | None, ended: ExitInfo, run_dir: str
) -> TelemetryReport | None:
    """Exports the last metrics, in a bounded time."""
    if not isinstance(exporter, Exporter):
        return exporter
    complete = ended.returncode == 0 and not (ended.interrupts or ended.timed_out)
    report = exporter.stop(RunEnd(ended.exit_code, ended.wall_s, complete))
    counts = experiment_counts(run_dir)
    notes = [note for item in counts.items() if (note := experiment_note(*item)) is not None]
    extension = dict(report.extension)
    if counts:
        extension["experiments"] = {
            name: msgspec.structs.asdict(item) for name, item in counts.items()
        }
    return TelemetryReport((*report.notes, *notes), extension)
