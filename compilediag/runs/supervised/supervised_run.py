"""A supervised run: as it is known when the target starts, what is sent of it while it goes on, and
how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from compilediag import extension_points
from compilediag.errors import OutputUnwritable
from compilediag.runs.run_directory import save_receipt
from compilediag.runs.supervised.child import ExitInfo
from compilediag.runs.supervised.options import RunOptions
from compilediag.runs.supervised.target import Target
from compilediag_harness.redaction.redactor import secret_values

if TYPE_CHECKING:
    from compilediag.receipt.schema.receipt import Receipt
    from compilediag.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What is run, and how."""

    words: tuple[str, ...]
    """TARGET and its arguments as they were typed."""
    options: RunOptions
    variables: Mapping[str, str]
    """The environment of the target, before ours is added."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that are redacted wherever they appear."""
        return secret_values(self.words, self.variables)


@dataclass(frozen=True, slots=True)
class SupervisedRun(CommandLine):
    """One run of it: what runs where."""

    target: Target
    run_dir: str
    started_unix: float
    folder: str
    """The working directory, which the target may remove."""

    @property
    def lane_name(self) -> str:
        return self.options.name or self.target.name


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    exit_code: int
    """For the shell: the target's own, 128 + signal when killed, 70 after a fault of ours."""
    run_dir: str
    """Where its files are: another directory than that requested where the target removed it."""
    receipt: Receipt | None
    """None when it could not be made; `notes` say why."""
    receipt_path: str | None
    """None when it could not be written."""
    notes: tuple[str, ...] = ()
    """Sentences for the user, beside the verdict."""
    timeline: Timeline | None = None
    """What the receipt was made from; None when there is none."""
    moved: bool = False
    """The files are not where they were requested to be."""
    stopped: bool = False
    """Ctrl-C, or a signal to us: no further run is wanted."""
    timed_out: bool = False
    """The time limit ended it."""


def with_receipt(outcome: Outcome, receipt: Receipt, *, latest: bool) -> Outcome:
    """The outcome with this receipt, which is written in place of its own; that it could not be is
    a note. `latest`: its directory becomes `.compilediag/latest`."""
    outcome = replace(outcome, receipt=receipt)
    try:
        path = save_receipt(receipt, outcome.run_dir, latest=latest)
    except OutputUnwritable as error:
        return replace(outcome, notes=(*outcome.notes, str(error)))
    return replace(outcome, receipt_path=path)


class TelemetryReport(NamedTuple):
    """How the export went: notes for the user, and the receipt's extension."""

    notes: tuple[str, ...]
    extension: Mapping[str, object]


class Export(Protocol):
    """What is sent while a run goes on."""

    def end(self, ended: ExitInfo, run_dir: str) -> TelemetryReport:
        """Exports the last metrics, in a bounded time."""
        ...


def begin_export(run: SupervisedRun) -> Export | None:
    """Starts the export of a run that has started; None without telemetry."""
    if run.options.telemetry is None:
        return None
    start: Callable[[SupervisedRun], Export] = extension_points.load(
        extension_points.TELEMETRY_EXPORT, "telemetry"
    )
    return start(run)
