"""From the files of a run that has ended to its receipt."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, NamedTuple

from compilediag.readers.journal import Journal, read_run
from compilediag.runs.run_directory import (
    MAX_TEXT_LOG_BYTES,
    attach_faults,
    bytes_written,
    dropped_markers,
    joined_logs,
    tail,
    text_logs,
)
from compilediag.runs.supervised.child import ExitInfo
from compilediag.runs.supervised.exit_status import (
    TAIL_LIMIT,
    exit_status_of,
    notes_on_attachment,
)
from compilediag.runs.supervised.options import Options
from compilediag.runs.supervised.target import Target
from compilediag_harness.wire import Event, EvidenceLost, TorchSeen

if TYPE_CHECKING:
    from compilediag.receipt.build.run_metadata import ProvenanceFacts, RunMetadata
    from compilediag.receipt.schema.receipt import Receipt
    from compilediag.runs.telemetry.exporter import TelemetryReport
    from compilediag.timeline.timeline import Timeline

ENVIRONMENT_PREFIXES = (
    "TORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_", "PYTORCH_", "TRITON_", "CUDA_", "NCCL_", "OMP_",
    "MKL_", "KMP_", "COMPILEDIAG_",
)  # fmt: skip
ENVIRONMENT_NAMES = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "PYTHONHASHSEED", "PYTHONOPTIMIZE",
    "CUBLAS_WORKSPACE_CONFIG",
)  # fmt: skip
"""Variables that change what torch does; no other one is ever recorded."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What the parent has recorded when the child has ended."""

    words: tuple[str, ...]
    """TARGET and its arguments as they were typed."""
    target: Target
    options: Options
    run_dir: str
    started_unix: float
    ended: ExitInfo
    provenance: ProvenanceFacts
    variables: Mapping[str, str]
    notes: tuple[str, ...] = ()
    """Sentences for the user about what was done after the child had ended."""
    telemetry: TelemetryReport | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        from compilediag.receipt.redact import secret_values

        return secret_values(self.words, self.variables)


class Assembled(NamedTuple):
    """A receipt that is not written yet, and sentences that go beside it."""

    receipt: Receipt
    notes: tuple[str, ...]
    timeline: Timeline


def assemble(record: RunRecord) -> Assembled:
    """The receipt of a run that has ended."""
    from compilediag.readers.torch_logs.counts import read_text_log
    from compilediag.runs.pipeline import RunEvents, receipt_of

    journals = read_run(record.run_dir)
    logs = text_logs(record.run_dir)
    notes = notes_on_attachment(
        record.target, journals, _torch_versions(journals), attach_faults(record.run_dir)
    )
    events: list[Sequence[Event]] = [journal.events for journal in journals]
    if not journals:
        # No process was attached: an event, so that every view shows why the verdict is blind.
        events = [(EvidenceLost(0.0, 0, "attach", notes[-1]),)]

    def metadata(timeline: Timeline) -> RunMetadata:
        extensions: dict[str, object] = {}
        if record.options.tlparse:
            from compilediag.runs.supervised.reports import link_reports, traces_in

            traces = traces_in(record.run_dir)
            linked = link_reports(traces, record.run_dir, timeline, record.secrets)
            extensions.update(linked.extensions)
            notes.extend(linked.notes)
        if record.telemetry is not None:
            extensions["telemetry"] = record.telemetry.extension
            notes.extend(record.telemetry.notes)
        return _metadata(record, journals, logs, extensions)

    timeline, _, receipt = receipt_of(
        RunEvents(
            events,
            _user_roots(record.target),
            read_text_log(joined_logs(logs, MAX_TEXT_LOG_BYTES)) if logs else None,
        ),
        metadata,
    )
    return Assembled(receipt, (*record.notes, *notes), timeline)


def _metadata(
    record: RunRecord,
    journals: Sequence[Journal],
    logs: Sequence[str],
    extensions: Mapping[str, object],
) -> RunMetadata:
    from compilediag.receipt.build.run_metadata import RunMetadata
    from compilediag.runs.artifacts import run_artifacts
    from compilediag.runs.metadata import journal_facts, receipt_identity

    journal = journal_facts(journals)
    dropped = dropped_markers(record.run_dir)
    if dropped and "gap" not in journal.records_lost:
        journal = replace(journal, records_lost={**journal.records_lost, "dropped": dropped})
    status = exit_status_of(
        record.ended,
        record.target,
        journals,
        timeout_s=record.options.timeout_s,
        log_tail=tail(logs[0], TAIL_LIMIT) if logs else None,
        lost=bool(journal.records_lost),
    )
    return RunMetadata(
        *receipt_identity(record.started_unix),
        status=status.status,
        exit_code=record.ended.exit_code,
        wall_s=record.ended.wall_s,
        argv=record.words,
        environment=recorded_variables(record.variables),
        tool_versions=_tool_versions(),
        prices=record.options.prices,
        secret_values=record.secrets,
        provenance=record.provenance,
        lane_name=record.options.name or record.target.name,
        run_id=os.path.basename(record.run_dir),
        journal=journal,
        failure_reason=status.reason,
        log_tail=status.log_tail,
        warmup=record.options.warmup,
        bytes_written=bytes_written(record.run_dir),
        artifacts=run_artifacts(record.run_dir),
        extensions=extensions,
    )


def recorded_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of the target's environment that a receipt may contain."""
    return {
        name: value
        for name, value in sorted(variables.items())
        if name.startswith(ENVIRONMENT_PREFIXES) or name in ENVIRONMENT_NAMES
    }


def _tool_versions() -> dict[str, str]:
    """Versions of the installed tools that a receipt may link to."""
    versions: dict[str, str] = {}
    for name in ("tlparse", "depyf"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def _user_roots(target: Target) -> tuple[str, ...]:
    roots = [os.getcwd()]
    if target.script:
        script = os.path.abspath(target.script)
        roots.append(script if os.path.isdir(script) else os.path.dirname(script))
    return tuple(dict.fromkeys(root for root in roots if root != os.sep))


def _torch_versions(journals: Sequence[Journal]) -> list[str]:
    return [
        event.torch
        for journal in journals
        for event in journal.events
        if isinstance(event, TorchSeen)
    ]
