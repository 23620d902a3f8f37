"""The files of a run as links of its receipt: role, size, and the digest of all but large ones."""

from __future__ import annotations

import mimetypes
import os
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from compilediag.readers.inputs import TEXT, TRACE, TRAIN, Input
from compilediag.readers.storage import DIGEST_LIMIT_BYTES, is_uri, open_regular, sha256_of, size_of
from compilediag.receipt.schema.receipt import Artifact
from compilediag.runs.run_directory import ARTIFACTS, DEPYF, REPORTS, TEXT_LOG_PREFIX, TRACES

ARTIFACT_LIMIT = 256

REPORT_ROLES = {
    "index.html": "tlparse_report",
    "raw.jsonl": "tlparse_raw",
    "compile_directory.json": "tlparse_directory",
    "chromium_events.json": "tlparse_timeline",
}
"""Files of a tlparse report that are linked; its index leads to hundreds of others."""

_SOURCE_ROLES = {TRACE: "torch_trace", TEXT: "torch_logs", TRAIN: "train_log"}
_ROLES_BY_PREFIX = (
    ("journal-", "journal"),
    (TEXT_LOG_PREFIX, "torch_logs"),
    (f"{ARTIFACTS}/{TRACES}", "torch_trace"),
    (f"{ARTIFACTS}/profile-", "torch_profile"),
    (f"{ARTIFACTS}/{DEPYF}/", "depyf"),
    ("attach-fault-", "fault"),
)


def run_artifacts(run_dir: str) -> tuple[Artifact, ...]:
    """The files of a run directory, at most `ARTIFACT_LIMIT`: journals and logs first."""
    with os.scandir(run_dir) as entries:
        paths = sorted(
            entry.path
            for entry in entries
            if entry.is_file(follow_symlinks=False) and entry.name.endswith((".jsonl", ".txt"))
        )
    paths += report_files(run_dir)
    artifacts = os.path.join(run_dir, ARTIFACTS)
    for folder, below, names in os.walk(artifacts):
        if folder == artifacts and REPORTS in below:
            below.remove(REPORTS)
        paths += [os.path.join(folder, name) for name in sorted(names)]
    plain = [path for path in paths if not os.path.islink(path)]
    return tuple(artifact_of(path, run_dir) for path in plain[:ARTIFACT_LIMIT])


def report_files(run_dir: str) -> list[str]:
    """The files of tlparse's reports in a run directory that a receipt links."""
    folder = os.path.join(run_dir, ARTIFACTS, REPORTS)
    try:
        reports = sorted((name for name in os.listdir(folder) if name.isdecimal()), key=int)
    except OSError:
        return []
    paths = [os.path.join(folder, report, name) for report in reports for name in REPORT_ROLES]
    return [path for path in paths if os.path.isfile(path)]


def artifact_of(path: str, run_dir: str) -> Artifact:
    """A file of a run directory."""
    uri = os.path.relpath(path, run_dir)
    try:
        size = os.path.getsize(path)
    except OSError:
        size = None
    kind = "application/x-ndjson" if path.endswith(".jsonl") else mimetypes.guess_type(path)[0]
    return Artifact(
        role=role_of(uri),
        uri=uri,
        media_type=kind or "text/plain",
        bytes=size,
        sha256=_digest(path, size),
    )


def role_of(uri: str) -> str:
    """The role of a file by its path in the run directory."""
    path = PurePath(uri)
    if path.parts[:2] == (ARTIFACTS, REPORTS):
        return REPORT_ROLES.get(path.name, "other")
    roles = (role for prefix, role in _ROLES_BY_PREFIX if path.as_posix().startswith(prefix))
    return next(roles, "other")


def source_artifacts(sources: Sequence[Input], folder: str) -> Iterator[Artifact]:
    """The traces and logs that a receipt in `folder` was made of, at most `ARTIFACT_LIMIT`.

    What lies at a URI has no digest: that would fetch it once more.
    """
    linked = [source for source in sources if source.kind in _SOURCE_ROLES]
    for source in linked[:ARTIFACT_LIMIT]:
        try:
            size = size_of(source.path)
        except OSError:
            continue
        remote = is_uri(source.path)
        yield Artifact(
            role=_SOURCE_ROLES[source.kind],
            uri=source.path if remote else os.path.relpath(source.path, folder),
            media_type="text/plain",
            bytes=size,
            sha256=None if remote else _digest(source.path, size),
        )


def _digest(path: str, size: int | None) -> str | None:
    if size is None or size > DIGEST_LIMIT_BYTES:
        return None
    file = open_regular(path)
    if file is None:
        return None
    with file:
        return sha256_of(file)
