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
from compilediag.supervisor import files
from compilediag.supervisor.child import Ended
from compilediag.supervisor.ending import TAIL_LIMIT, notes_on_attachment, tell_ending
from compilediag.supervisor.options import Options
from compilediag.supervisor.output import ARTIFACTS
from compilediag.supervisor.target import Target
from compilediag_harness.wire import Event, EvidenceLost, TorchSeen

if TYPE_CHECKING:
    from compilediag.receipt.run_facts import ArtifactFacts, JournalFacts, ProvenanceFacts, RunFacts
    from compilediag.receipt.schema import Receipt
    from compilediag.timeline import Timeline

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
    ended: Ended
    provenance: ProvenanceFacts
    variables: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Assembled:
    """A receipt that is not written yet, and sentences that go beside it."""

    receipt: Receipt
    notes: tuple[str, ...]
    timeline: Timeline


def assemble(record: RunRecord) -> Assembled:
    """The receipt of a run that has ended."""
    from compilediag.diagnose import diagnose
    from compilediag.fold import fold
    from compilediag.readers.text import read_text_log
    from compilediag.receipt.build import build

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
    receipt = build(timeline, diagnose(timeline), _facts(record, journals))
    return Assembled(receipt, tuple(notes), timeline)


def _facts(record: RunRecord, journals: Sequence[Journal]) -> RunFacts:
    from compilediag.receipt.run_facts import RunFacts
    from compilediag.receipt.ulid import ulid
    from compilediag.redact import secret_values

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
    return RunFacts(
        receipt_id=ulid(int(record.started_unix * 1000), os.urandom(10)),
        created_at_utc=f"{stamp}Z",
        status=ending.status,
        exit_code=record.ended.exit_code,
        wall_s=record.ended.wall_s,
        argv=record.words,
        environment=_allowed(record.variables),
        tool_versions=_tool_versions(),
        secret_values=secret_values(record.words, record.variables),
        provenance=record.provenance,
        lane_name=record.options.name or record.target.name,
        run_id=os.path.basename(record.run_dir),
        journal=journal,
        failure_reason=ending.reason,
        log_tail=ending.log_tail,
        warmup=record.options.warmup,
        bytes_written=files.bytes_written(record.run_dir),
        artifacts=tuple(_artifacts(record.run_dir)),
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
    from compilediag.receipt.run_facts import JournalFacts

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


def _artifacts(run_dir: str) -> Iterator[ArtifactFacts]:
    for path in [*_top_files(run_dir), *_artifact_files(run_dir)][:ARTIFACT_LIMIT]:
        yield _artifact(path, run_dir)


def _top_files(run_dir: str) -> list[str]:
    return [
        entry.path
        for entry in sorted(os.scandir(run_dir), key=lambda entry: entry.name)
        if entry.is_file(follow_symlinks=False) and entry.name.endswith((".jsonl", ".txt"))
    ]


def _artifact_files(run_dir: str) -> list[str]:
    found: list[str] = []
    for folder, _, names in os.walk(os.path.join(run_dir, ARTIFACTS)):
        found += [os.path.join(folder, name) for name in sorted(names)]
    return [path for path in found if not os.path.islink(path)]


def _artifact(path: str, run_dir: str) -> ArtifactFacts:
    from compilediag.receipt.run_facts import ArtifactFacts

    uri = os.path.relpath(path, run_dir)
    kind = "application/x-ndjson" if path.endswith(".jsonl") else mimetypes.guess_type(path)[0]
    try:
        size = os.path.getsize(path)
    except OSError:
        size = None
    return ArtifactFacts(
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
        ("attach-fault-", "fault"),
    ):
        if uri.startswith(prefix):
            return role
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
