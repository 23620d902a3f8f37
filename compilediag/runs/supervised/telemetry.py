"""Telemetry of a supervised run, which an extension sends: begun when the target has started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from compilediag import extension_points
from compilediag.runs.supervised.child import ExitInfo
from compilediag.runs.supervised.supervised_run import SupervisedRun


class TelemetryReport(NamedTuple):
    """How the export went: notes for the user, and the receipt's extension."""

    notes: tuple[str, ...]
    extension: Mapping[str, object]


class Export(Protocol):
    """What is sent while a run goes on."""

    def end(self, ended: ExitInfo, run_dir: str) -> TelemetryReport:
        """Exports the last metrics, in a bounded time."""
        ...


def begin(run: SupervisedRun) -> Export | None:
    """Starts the export of a run that has started; None without telemetry."""
    if run.options.telemetry is None:
        return None
    start: Callable[[SupervisedRun], Export] = extension_points.load(
        extension_points.TELEMETRY_EXPORT, "telemetry"
    )
    return start(run)
