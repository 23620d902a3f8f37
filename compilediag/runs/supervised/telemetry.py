"""Telemetry of a supervised run: begun when the target has started, ended when it has ended."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from compilediag.runs.supervised.child import ExitInfo
    from compilediag.runs.telemetry.exporter import Exporter, Told
    from compilediag.runs.telemetry.settings import TelemetrySettings


def experiment_period(wishes: TelemetrySettings | None) -> float | None:
    """Seconds from one telling of the experiments inside of the target to the next; None: none."""
    return wishes.every_s if wishes is not None and wishes.experiments else None


def begin(
    wishes: TelemetrySettings | None,
    run_dir: str,
    started_unix: float,
    variables: Mapping[str, str],
    words: Sequence[str],
    lane: str,
) -> Exporter | Told | None:
    """Starts the threads that tell of the run; None where nobody is to be told.

    The target runs by now: a fault of ours must not leave it alone, and is told instead.
    """
    if wishes is None:
        return None
    from compilediag.runs.telemetry.exporter import Told

    try:
        return _begun(wishes, run_dir, started_unix, variables, words, lane)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"[:300]
        return Told((f"telemetry did not begin, by a fault of compilediag: {said}",), {})


def _begun(
    wishes: TelemetrySettings,
    run_dir: str,
    started_unix: float,
    variables: Mapping[str, str],
    words: Sequence[str],
    lane: str,
) -> Exporter:
    from compilediag.receipt.redact import secret_values
    from compilediag.runs.telemetry.exporter import Exporter, Run
    from compilediag.runs.telemetry.sinks import receivers_of

    receivers = receivers_of(wishes, variables, lane=lane, run_id=os.path.basename(run_dir))
    run = Run(run_dir, started_unix, secret_values(words, variables))
    telling = Exporter(run, receivers, wishes.every_s, figures_file=wishes.experiments)
    telling.start()
    return telling


def end(telling: Exporter | Told | None, ended: ExitInfo, run_dir: str) -> Told | None:
    """Tells the last figures, in a bounded time."""
    if telling is None:
        return None
    from compilediag.runs.telemetry.experiment_counts import experiment_counts, experiment_note
    from compilediag.runs.telemetry.exporter import Exporter, Told
    from compilediag.runs.telemetry.live_run import End

    if not isinstance(telling, Exporter):
        return telling
    complete = ended.returncode == 0 and not (ended.interrupted or ended.timed_out)
    told = telling.stop(End(ended.exit_code, ended.wall_s, complete))
    found = experiment_counts(run_dir)
    notes = [note for item in found.items() if (note := experiment_note(*item)) is not None]
    extension = dict(told.extension)
    if found:
        counts = {name: msgspec.structs.asdict(item) for name, item in found.items()}
        extension["experiments"] = counts
    return Told((*told.notes, *notes), extension)
