"""The export of a supervised run: begun when the target has started, ended when it has ended."""

from __future__ import annotations

import os
from dataclasses import dataclass

import msgspec

from compilediag.extensions.telemetry.experiment_counts import experiment_counts, experiment_note
from compilediag.extensions.telemetry.exporter import Exporter
from compilediag.extensions.telemetry.live_run import RunEnd
from compilediag.extensions.telemetry.settings import TelemetrySettings
from compilediag.extensions.telemetry.sinks import sinks_for
from compilediag.runs.supervised.child import ExitInfo
from compilediag.runs.supervised.supervised_run import SupervisedRun
from compilediag.runs.supervised.telemetry import TelemetryReport


@dataclass(frozen=True, slots=True)
class RunExport:
    """The export of one run."""

    exporter: Exporter | TelemetryReport
    """A report says why it did not begin."""

    def end(self, ended: ExitInfo, run_dir: str) -> TelemetryReport:
        """Exports the last metrics, in a bounded time."""
        if not isinstance(self.exporter, Exporter):
            return self.exporter
        complete = ended.returncode == 0 and not (ended.interrupts or ended.timed_out)
        report = self.exporter.stop(RunEnd(ended.exit_code, ended.wall_s, complete))
        counts = experiment_counts(run_dir)
        notes = [note for item in counts.items() if (note := experiment_note(*item)) is not None]
        extension = dict(report.extension)
        if counts:
            extension["experiments"] = {
                name: msgspec.structs.asdict(item) for name, item in counts.items()
            }
        return TelemetryReport((*report.notes, *notes), extension)


def begin(run: SupervisedRun) -> RunExport:
    """Starts the threads that export the run.

    The target runs by now: a fault of ours must not leave it alone, and is reported instead.
    """
    settings = run.options.telemetry
    assert isinstance(settings, TelemetrySettings)
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
        return RunExport(TelemetryReport((note,), {}))
    return RunExport(exporter)
