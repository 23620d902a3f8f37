"""From the files of a run that has ended to its receipt."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version

from compilediag.readers.journal import ProcessJournal, read_run
from compilediag.readers.torch_logs import read_text_log
from compilediag.receipt.run_metadata import RunMetadata
from compilediag.receipt.schema.identity import Provenance
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.artifacts import run_artifacts
from compilediag.runs.checkout import with_sources
from compilediag.runs.pipeline import Stage, journal_facts, receipt_identity, receipt_of, unwatched
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
from compilediag.runs.supervised.supervised_run import SupervisedRun, TelemetryReport
from compilediag.runs.tools.tlparse import link_reports
from compilediag.runs.tools.tlparse_log import clean_traces, traces_in
from compilediag.timeline.timeline import TextLog, Timeline, fold
from compilediag_harness.collectors.trace_redaction import FAULT
from compilediag_harness.wire import (
    ATTACH,
    Event,
    EvidenceLost,
    FaultOccurred,
    ProcessEnded,
    ProcessStarted,
    TorchSeen,
)

ENVIRONMENT_PREFIXES = (
    "TORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_", "PYTORCH_", "TRITON_", "CUDA_", "NCCL_", "OMP_",
    "MKL_", "KMP_", "COMPILEDIAG_",
)  # fmt: skip
ENVIRONMENT_NAMES = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "PYTHONHASHSEED", "PYTHONOPTIMIZE",
    "CUBLAS_WORKSPACE_CONFIG",
)  # fmt: skip
"""Variables that change what torch does; no other one is ever recorded."""


def assemble(
    run: SupervisedRun,
    ended: ExitInfo,
    provenance: Provenance,
    telemetry: TelemetryReport | None = None,
    stage: Stage = unwatched,
) -> tuple[Receipt, tuple[str, ...], Timeline]:
    """The receipt of a run that has ended, sentences that go beside it, and its events."""
    stage(f"reading the {bytes_written(run.run_dir) >> 20} MiB that were recorded")
    journals = read_run(run.run_dir)
    logs = text_logs(run.run_dir)
    seen = [event for journal in journals for event in journal.events]
    versions = [event.torch for event in seen if isinstance(event, TorchSeen)]
    notes = notes_on_attachment(run.target, journals, versions, attach_faults(run.run_dir))
    notes += clean_traces(run.run_dir, _redacting(journals), run.secrets)
    events: list[Sequence[Event]] = [journal.events for journal in journals]
    if not journals:
        # No process was attached: an event, so that every view shows why the verdict is blind.
        events = [(EvidenceLost(0.0, 0, ATTACH, notes[-1]),)]

    stage("putting the events in order")
    roots = [run.folder]
    if run.target.script:
        script = os.path.normpath(os.path.join(run.folder, run.target.script))
        roots.append(script if os.path.isdir(script) else os.path.dirname(script))
    roots = dict.fromkeys(root for root in roots if root != os.sep)
    timeline = fold(events, read_logs(logs) if logs else None, tuple(roots))
    extensions: dict[str, object] = {}
    if run.options.tlparse:
        stage("waiting for tlparse")
        linked = link_reports(traces_in(run.run_dir), run.run_dir, run.secrets)
        extensions.update(linked.extensions)
        notes.extend(linked.notes)
    if telemetry is not None:
        extensions["telemetry"] = telemetry.extension
        notes.extend(telemetry.notes)
    code = with_sources(provenance, timeline, run.folder, run.started_unix)
    known = replace(_metadata(run, ended, journals, logs), provenance=code, extensions=extensions)
    return receipt_of(timeline, known, stage).receipt, tuple(notes), timeline


def read_logs(paths: Sequence[str], limit_bytes: int = MAX_TEXT_LOG_BYTES) -> TextLog:
    """What the text logs of a run hold, of each up to the limit."""
    found = read_text_log(joined_logs(paths, limit_bytes))
    over = any(os.path.getsize(path) > limit_bytes for path in paths)
    return replace(found, over_limit=found.over_limit or over)


def _metadata(
    run: SupervisedRun, ended: ExitInfo, journals: Sequence[ProcessJournal], logs: Sequence[str]
) -> RunMetadata:
    journal = journal_facts(journals)
    dropped = dropped_markers(run.run_dir)
    if dropped and "gap" not in journal.records_lost:
        journal = replace(journal, records_lost={**journal.records_lost, "dropped": dropped})
    status = exit_status_of(
        ended,
        run.target,
        journals,
        timeout_s=run.options.timeout_s,
        log_tail=tail(logs[0], TAIL_LIMIT) if logs else None,
        lost=bool(journal.records_lost),
    )
    versions: dict[str, str] = {}  # of installed tools that a receipt may link to
    for name in ("tlparse", "depyf"):
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    return RunMetadata(
        *receipt_identity(run.started_unix),
        status=status.status,
        exit_code=ended.exit_code,
        wall_s=ended.wall_s,
        argv=run.words,
        environment=recorded_variables(run.variables),
        tool_versions=versions,
        prices=run.options.prices,
        secret_values=run.secrets,
        lane_name=run.lane_name,
        run_id=os.path.basename(run.run_dir),
        journal=journal,
        failure_reason=status.reason,
        log_tail=status.log_tail,
        warmup=run.options.warmup,
        bytes_written=bytes_written(run.run_dir),
        artifacts=run_artifacts(run.run_dir),
    )


def recorded_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of the target's environment that a receipt may contain."""
    return {
        name: value
        for name, value in sorted(variables.items())
        if name.startswith(ENVIRONMENT_PREFIXES) or name in ENVIRONMENT_NAMES
    }


def _redacting(journals: Sequence[ProcessJournal]) -> int:
    """Processes that take the secrets out of torch's trace themselves, forked ones among them; 0
    where one failed to."""
    if any(
        isinstance(event, FaultOccurred) and event.where == FAULT
        for journal in journals
        for event in journal.events
    ):
        return 0
    ends = (ProcessStarted, ProcessEnded)  # all that a process without torch writes
    return sum(any(not isinstance(item, ends) for item in one.events) for one in journals)
