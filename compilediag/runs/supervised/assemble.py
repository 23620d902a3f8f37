"""The receipt of a run that has ended, made from its files; its end as a status and a sentence.

The target's output belongs to the terminal and is not captured, so the reason comes from the
journals of its processes, from the exit code, and from the signals that were sent to it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from compilediag.readers.journal import ProcessJournal, read_run
from compilediag.readers.lines import parse_unix_s
from compilediag.readers.storage import list_names
from compilediag.readers.torch_logs import read_text_log
from compilediag.receipt.run_metadata import RunMetadata
from compilediag.receipt.schema.identity import Provenance
from compilediag.receipt.schema.receipt import Receipt, Status
from compilediag.runs.checkout import add_source_digests
from compilediag.runs.pipeline import Stage, diagnose_run, make_identity, summarize_journals
from compilediag.runs.run_directory import (
    MAX_TEXT_LOG_BYTES,
    count_bytes_written,
    list_artifacts,
    list_text_logs,
    read_attach_faults,
    read_joined_logs,
    read_tail,
)
from compilediag.runs.supervised.child import ExitInfo, SupervisedRun, TelemetryReport
from compilediag.runs.supervised.target import Target
from compilediag.runs.tools.tlparse import clean_traces, link_reports, list_traces
from compilediag.timeline.timeline import TextLog, Timeline, fold
from compilediag_harness import wire
from compilediag_harness.collectors.logs import FAULT

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
    stage: Stage = lambda text: None,
) -> tuple[Receipt, tuple[str, ...], Timeline]:
    """Assemble the receipt of an ended run, sentences that go beside it, and its timeline."""
    stage(f"reading the {count_bytes_written(run.run_dir) >> 20} MiB that were recorded")
    journals = read_run(run.run_dir)
    logs = list_text_logs(run.run_dir)
    seen = [event for journal in journals for event in journal.events]
    versions = [event.torch for event in seen if isinstance(event, wire.TorchSeen)]
    notes = describe_attachment(run.target, journals, versions, read_attach_faults(run.run_dir))
    # Processes that take the secrets out of torch's trace themselves, if none failed to.
    ends = (wire.ProcessStarted, wire.ProcessEnded)  # all that a process without torch writes
    redacting = sum(any(not isinstance(event, ends) for event in one.events) for one in journals)
    if any(isinstance(event, wire.FaultOccurred) and event.where == FAULT for event in seen):
        redacting = 0
    notes += clean_traces(run.run_dir, redacting, run.secrets)
    notes += [
        f"certify cannot judge by this run: an internal error in {event.where}: {event.raised}"
        for event in seen
        if isinstance(event, wire.FaultOccurred) and event.in_recording
    ]
    events: list[Sequence[wire.Event]] = [journal.events for journal in journals]
    if not journals:
        # No process was attached: an event, so that every view shows why the verdict is blind.
        events = [(wire.EvidenceLost(0.0, 0, wire.ATTACH, notes[-1]),)]

    stage("putting the events in order")
    roots = list_user_roots(run.folder, run.target.script)
    timeline = fold(events, read_logs(logs) if logs else None, roots)
    extensions: dict[str, object] = {}
    if run.options.tlparse:
        stage("waiting for tlparse")
        linked = link_reports(list_traces(run.run_dir), run.run_dir, run.secrets)
        extensions.update(linked.extensions)
        notes.extend(linked.notes)
    if telemetry is not None:
        extensions["telemetry"] = telemetry.extension
        notes.extend(telemetry.notes)
    code = add_source_digests(provenance, timeline, run.folder, run.started_unix)
    known = _build_metadata(run, ended, journals, logs)
    known = replace(known, provenance=code, extensions=extensions)
    return diagnose_run(timeline, known, stage).receipt, tuple(notes), timeline


def list_user_roots(folder: str, script: str | None) -> tuple[str, ...]:
    """List the folders whose code is the user's own: the working directory, and the script's."""
    roots = [folder]
    if script:
        path = os.path.normpath(os.path.join(folder, script))
        roots.append(path if os.path.isdir(path) else os.path.dirname(path))
    return tuple(dict.fromkeys(root for root in roots if root != os.sep))


def read_logs(paths: Sequence[str], limit_bytes: int = MAX_TEXT_LOG_BYTES) -> TextLog:
    """Read the text logs of a run, of each up to the limit."""
    log = read_text_log(read_joined_logs(paths, limit_bytes))
    over = any(os.path.getsize(path) > limit_bytes for path in paths)
    return replace(log, over_limit=log.over_limit or over)


def _build_metadata(
    run: SupervisedRun, ended: ExitInfo, journals: Sequence[ProcessJournal], logs: Sequence[str]
) -> RunMetadata:
    journal = summarize_journals(journals)
    # A marker for each process that dropped records.
    dropped = sum(name.endswith(".dropped") for name in list_names(run.run_dir))
    if dropped and "gap" not in journal.records_lost:
        journal = replace(journal, records_lost={**journal.records_lost, "dropped": dropped})
    status = infer_exit_status(
        ended,
        run.target,
        journals,
        timeout_s=run.options.timeout_s,
        log_tail=read_tail(logs[0], TAIL_LIMIT) if logs else None,
        lost=bool(journal.records_lost),
    )
    versions: dict[str, str] = {}  # of installed tools that a receipt may link to
    for name in ("tlparse", "depyf"):
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    return RunMetadata(
        *make_identity(run.started_unix),
        status=status.status,
        exit_code=ended.exit_code,
        wall_s=ended.wall_s,
        argv=run.words,
        environment=select_recorded_variables(run.variables),
        tool_versions=versions,
        prices=run.options.prices,
        secret_values=run.secrets,
        configuration_name=run.configuration_name,
        run_id=os.path.basename(run.run_dir),
        journal=journal,
        failure_reason=status.reason,
        log_tail=status.log_tail,
        warmup=run.options.warmup,
        bytes_written=count_bytes_written(run.run_dir),
        artifacts=list_artifacts(run.run_dir),
    )


def select_recorded_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Select the variables of the target's environment that a receipt may contain."""
    return {
        name: value
        for name, value in sorted(variables.items())
        if name.startswith(ENVIRONMENT_PREFIXES) or name in ENVIRONMENT_NAMES
    }


TORCH_FLOOR = Version("2.7")
TAIL_LIMIT = 8192

_INVALID_LOGS = re.compile(r"Invalid log settings: (?P<words>.{1,200}?), must be a comma")
_NO_TORCH = re.compile(r"ModuleNotFoundError: No module named 'torch'")


class ExitStatus(NamedTuple):
    """The `status` and `failure` of a receipt; `reason` is None when the run ended well."""

    status: Status
    reason: str | None = None
    log_tail: str | None = None


def infer_exit_status(
    ended: ExitInfo,
    target: Target,
    journals: Sequence[ProcessJournal],
    *,
    timeout_s: float | None = None,
    log_tail: str | None = None,
    lost: bool = False,
) -> ExitStatus:
    """Infer the status of a run that has ended. `journals`: of all its processes; `log_tail`: the
    end of the text log, used where no process left a traceback; `lost`: records were lost, so that
    the receipt covers only a part of the run."""
    status: Status = "failed"
    interrupted = ended.returncode == -signal.SIGINT
    if ended.timed_out or ended.interrupts:
        interrupted = interrupted or not _was_over(journals)
    if ended.returncode < 0 and (ended.timed_out or not interrupted):
        status = "killed"
    elif interrupted:
        status = "interrupted"
    elif ended.returncode == 0:
        return ExitStatus("partial" if lost else "complete")
    raised, traceback = _find_first_failure(ended, target, journals)
    why = _describe_stop(ended, timeout_s) or _explain_failure(raised, ended.exit_code, journals)
    return ExitStatus(status, why, (traceback or log_tail or "")[-TAIL_LIMIT:] or None)


def _was_over(journals: Sequence[ProcessJournal]) -> bool:
    """True if Ctrl-C or the time limit came when the program had ended, and calls with other inputs
    were made."""
    events = [event for journal in journals for event in journal.events]
    ends = [event for event in events if isinstance(event, wire.VaryingEnded)]
    return any(end.interrupted or end.timed_out for end in ends)


def _describe_stop(ended: ExitInfo, timeout_s: float | None) -> str | None:
    """Describe what ended the run from outside; None where it ended by itself."""
    sent = " and ".join(signum.name for signum in ended.sent)
    if ended.timed_out:
        return f"the time limit of {timeout_s:g} s was reached; ended with {sent}"
    if ended.interrupts:
        return f"Ctrl-C twice; the target had not ended and was sent {sent}" if sent else "Ctrl-C"
    if ended.returncode >= 0:
        return None
    name = _format_signal(-ended.returncode)
    if ended.returncode == -signal.SIGINT:
        return name
    if ended.returncode == -signal.SIGKILL:
        return f"killed by {name}, not by compilediag; the system does that when memory runs out"
    return f"killed by {name}"


def _format_signal(signum: int) -> str:
    try:
        return f"{signal.Signals(signum).name} (signal {signum})"
    except ValueError:
        return f"signal {signum}"


def _find_first_failure(
    ended: ExitInfo, target: Target, journals: Sequence[ProcessJournal]
) -> tuple[str | None, str | None]:
    """Find the exception that ended the run, and its traceback: the target's own, else the one of
    the process that ended first, since a launcher's exception only follows from a worker's."""
    failures: list[tuple[bool, float, str]] = []
    for journal in journals:
        started, last = journal.started, journal.events[-1] if journal.events else None
        if isinstance(last, wire.ProcessEnded) and last.failure and started:
            of_other = target.kind == "program" or started.pid != ended.pid
            # A fork continues its parent's clock: its journal does not begin at 0.
            began_at = parse_unix_s(started.started_utc) or float("inf")
            ended_at = began_at + last.t - started.t
            failures.append((of_other, ended_at, last.failure))
    if not failures:
        return None, None
    raised, _, traceback = min(failures, key=lambda failure: failure[:2])[2].partition("\n\n")
    return raised, traceback or None


def _explain_failure(raised: str | None, code: int, journals: Sequence[ProcessJournal]) -> str:
    """Return the exception's own line, a sentence for a known mistake, or else the exit code."""
    if raised is None and 128 < code < 128 + 65:
        return f"exit code {code}, which a shell uses for {_format_signal(code - 128)}"
    if raised is None:
        return f"exit code {code}; no Python exception was seen"
    if invalid := _INVALID_LOGS.search(raised):
        return (
            f"torch refused TORCH_LOGS because of {invalid['words']!r}, which it does not know: "
            'mend the variable (TORCH_LOGS="help" lists the words) or unset it'
        )
    if _NO_TORCH.match(raised):
        programs = (journal.started.executable for journal in journals if journal.started)
        where = next(programs, "this Python")
        return (
            f"torch is not installed for {where}: install it there, or run compilediag from the "
            "environment that has it"
        )
    return raised


def describe_attachment(
    target: Target,
    journals: Sequence[ProcessJournal],
    versions: Sequence[str],
    faults: Sequence[str],
) -> list[str]:
    """Describe in sentences why nothing, or less than usual, could be observed."""
    notes = [f"compilediag could not attach to a process: {fault}" for fault in faults[:3]]
    if not journals and not notes:
        why = (
            "the interpreter did not load compilediag's sitecustomize, or could not write into the "
            "output directory"
        )
        if target.defeats:
            why = (
                f"`python {target.defeats}` ignores the environment that attaches compilediag; run "
                "the target without it"
            )
        elif target.kind == "program":
            why = (
                "the program started none, or started it with -E, -I or -S, or with a cleaned "
                "environment"
            )
        notes.append(f"no Python process was observed: {why}")
    old: set[str] = set()
    for torch in versions:
        with contextlib.suppress(InvalidVersion):
            old |= {torch} if Version(torch) < TORCH_FLOOR else set()
    if old:
        notes.append(
            f"torch {', '.join(sorted(old))} is older than {TORCH_FLOOR}: what was counted may be "
            "wrong; use a newer torch"
        )
    return notes
