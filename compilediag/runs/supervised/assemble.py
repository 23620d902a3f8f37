"""From the files of a run to its receipt: reads, folds, diagnoses, builds, writes."""

from __future__ import annotations

import contextlib
import hashlib
import mimetypes
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compilediag.readers.journal import Journal, read_run
from compilediag.runs.run_directory import ARTIFACTS
from compilediag.runs.supervised import files
from compilediag.runs.supervised.child import ExitInfo
from compilediag.runs.supervised.exit_status import TAIL_LIMIT, notes_on_attachment, tell_ending
from compilediag.runs.supervised.options import Options
from compilediag.runs.supervised.target import Target
from compilediag_harness.wire import Event, EvidenceLost, TorchSeen

if TYPE_CHECKING:
    from compilediag.receipt.build.run_metadata import JournalFacts, RunMetadata
    from compilediag.receipt.schema.identity import Provenance
    from compilediag.receipt.schema.receipt import Artifact, Receipt
    from compilediag.runs.telemetry.exporter import Told
    from compilediag.timeline.timeline import Timeline

REPORTS = "tlparse"
"""Folder of tlparse's reports among the artifacts; their indexes lead to hundreds of files."""
TEXT_LOG_PREFIX = "torch_logs"
DIGEST_LIMIT_BYTES = 64 << 20
ARTIFACT_LIMIT = 256

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
    """What the parent knows when the child has ended."""

    words: tuple[str, ...]
    """TARGET and its arguments as they were typed."""
    target: Target
    options: Options
    run_dir: str
    started_unix: float
    ended: ExitInfo
    provenance: Provenance
    variables: Mapping[str, str]
    notes: tuple[str, ...] = ()
    """Sentences for the user about what was done after the child had ended."""
    told: Told | None = None
    """How telemetry went; None where there was none."""


@dataclass(frozen=True, slots=True)
class Assembled:
    """A receipt that is not written yet, and sentences that go beside it."""

    receipt: Receipt
    notes: tuple[str, ...]
    timeline: Timeline


def assemble(record: RunRecord) -> Assembled:
    """The receipt of a run that has ended."""
    from compilediag.diagnosis.diagnose import diagnose
    from compilediag.readers.torch_logs.counts import read_text_log
    from compilediag.receipt.build.build import build
    from compilediag.timeline.fold import fold

    journals = read_run(record.run_dir)
    logs = _text_logs(record.run_dir)
    text_log = read_text_log(_joined(logs)) if logs else None
    notes = notes_on_attachment(
        record.target, journals, _torch_versions(journals), files.attach_faults(record.run_dir)
    )
    events: list[Sequence[Event]] = [journal.events for journal in journals]
    if not journals:
        # Nobody attached: said as an event, so that every view tells why the verdict is blind.
        events = [(EvidenceLost(0.0, 0, "attach", notes[-1]),)]
    timeline = fold(events, text_log, _user_roots(record.target))
    extensions: Mapping[str, object] = {}
    if record.options.tlparse:
        from compilediag.runs.supervised.reports import link_reports, traces_in

        traces = traces_in(record.run_dir)
        linked = link_reports(traces, record.run_dir, timeline, _secrets(record))
        extensions = linked.extensions
        notes += linked.notes
    if record.told is not None:
        extensions = {**extensions, "telemetry": record.told.extension}
        notes += record.told.notes
    facts = _facts(record, journals, extensions)
    receipt = build(timeline, diagnose(timeline), facts)
    return Assembled(receipt, (*record.notes, *notes), timeline)


def _secrets(record: RunRecord) -> tuple[str, ...]:
    from compilediag.receipt.redact import secret_values

    return secret_values(record.words, record.variables)


def _facts(
    record: RunRecord, journals: Sequence[Journal], extensions: Mapping[str, object]
) -> RunMetadata:
    from compilediag.receipt.build.run_metadata import RunMetadata
    from compilediag.receipt.ulid import ulid

    logs = _text_logs(record.run_dir)
    journal = _journal_facts(record.run_dir, journals)
    ending = tell_ending(
        record.ended,
        record.target,
        journals,
        timeout_s=record.options.timeout_s,
        log_tail=files.tail(logs[0], TAIL_LIMIT) if logs else None,
        lost=bool(journal.records_lost),
    )
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.started_unix))
    return RunMetadata(
        receipt_id=ulid(int(record.started_unix * 1000), os.urandom(10)),
        created_at_utc=f"{stamp}Z",
        status=ending.status,
        exit_code=record.ended.exit_code,
        wall_s=record.ended.wall_s,
        argv=record.words,
        environment=_allowed(record.variables),
        tool_versions=_tool_versions(),
        prices=record.options.prices,
        secret_values=_secrets(record),
        provenance=record.provenance,
        lane_name=record.options.name or record.target.name,
        run_id=os.path.basename(record.run_dir),
        journal=journal,
        failure_reason=ending.reason,
        log_tail=ending.log_tail,
        warmup=record.options.warmup,
        bytes_written=files.bytes_written(record.run_dir),
        artifacts=tuple(_artifacts(record.run_dir)),
        extensions=extensions,
    )


def _tool_versions() -> dict[str, str]:
    """Versions of the tools a receipt may link to, as far as they are installed."""
    from importlib import metadata

    found: dict[str, str] = {}
    for name in ("tlparse", "depyf"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _allowed(variables: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in sorted(variables.items())
        if name.startswith(ENVIRONMENT_PREFIXES) or name in ENVIRONMENT_NAMES
    }


def _journal_facts(run_dir: str, journals: Sequence[Journal]) -> JournalFacts:
    from compilediag.receipt.build.run_metadata import JournalFacts

    lost: dict[str, int] = {}
    for journal in journals:
        for reason, count in journal.lost.items():
            lost[reason] = lost.get(reason, 0) + count
    dropped = files.dropped_markers(run_dir)
    if dropped and "gap" not in lost:
        lost["dropped"] = dropped
    return JournalFacts(
        records=sum(len(journal.events) for journal in journals),
        torn_tail=any(journal.torn_tail for journal in journals),
        records_lost=lost,
    )


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


def _text_logs(run_dir: str) -> list[str]:
    names = sorted(name for name in os.listdir(run_dir) if name.startswith(TEXT_LOG_PREFIX))
    return [os.path.join(run_dir, name) for name in names]


def _joined(paths: Sequence[str]) -> Iterator[bytes]:
    for path in paths:
        yield from files.chunks(path)
        yield b"\n"  # a torn end must not run into the next file


def _artifacts(run_dir: str) -> Iterator[Artifact]:
    for path in [*_top_files(run_dir), *_artifact_files(run_dir)][:ARTIFACT_LIMIT]:
        yield artifact_of(path, run_dir)


def _top_files(run_dir: str) -> list[str]:
    return [
        entry.path
        for entry in sorted(os.scandir(run_dir), key=lambda entry: entry.name)
        if entry.is_file(follow_symlinks=False) and entry.name.endswith((".jsonl", ".txt"))
    ]


def _artifact_files(run_dir: str) -> list[str]:
    reports = os.path.join(run_dir, ARTIFACTS, REPORTS)
    found: list[str] = []
    if os.path.isdir(reports):
        from compilediag.runs.supervised.reports import linked_files

        found = linked_files(run_dir)
    for folder, below, names in os.walk(os.path.join(run_dir, ARTIFACTS)):
        if os.path.join(folder, REPORTS) == reports and REPORTS in below:
            below.remove(REPORTS)  # hundreds of files, which its index leads to
        found += [os.path.join(folder, name) for name in sorted(names)]
    return [path for path in found if not os.path.islink(path)]


def artifact_of(path: str, run_dir: str) -> Artifact:
    """A file of the run, with its size and, unless it is very large, its digest."""
    from compilediag.receipt.schema.receipt import Artifact

    uri = os.path.relpath(path, run_dir)
    kind = "application/x-ndjson" if path.endswith(".jsonl") else mimetypes.guess_type(path)[0]
    try:
        size = os.path.getsize(path)
    except OSError:
        size = None
    return Artifact(
        role=_role(uri),
        uri=uri,
        media_type=kind or "text/plain",
        bytes=size,
        sha256=_digest(path) if size is not None and size <= DIGEST_LIMIT_BYTES else None,
    )


def _role(uri: str) -> str:
    for prefix, role in (
        ("journal-", "journal"),
        (TEXT_LOG_PREFIX, "torch_logs"),
        (f"{ARTIFACTS}{os.sep}torch_trace", "torch_trace"),
        (f"{ARTIFACTS}{os.sep}profile-", "torch_profile"),
        (f"{ARTIFACTS}{os.sep}depyf{os.sep}", "depyf"),
        ("attach-fault-", "fault"),
    ):
        if uri.startswith(prefix):
            return role
    if uri.startswith(f"{ARTIFACTS}{os.sep}{REPORTS}{os.sep}"):
        from compilediag.runs.supervised.reports import role_of

        return role_of(uri) or "other"
    return "other"


def _digest(path: str) -> str | None:
    digest = hashlib.sha256()
    file = files.open_plain(path)
    if file is None:
        return None
    with file:
        while piece := file.read(files.CHUNK_BYTES):
            digest.update(piece)
    return digest.hexdigest()
