"""The directory of a run and its files. It is made before the target starts, and is never one that
holds something else. What its processes left in it is read with a limit on everything, held open
while the target runs, which may remove it, and linked from the receipt. Files that a user names for
ours are checked here too."""

from __future__ import annotations

import contextlib
import mimetypes
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import PurePath
from typing import BinaryIO

from compilediag.errors import CompilediagError, OutputUnwritable, UsageError
from compilediag.readers.inputs import TEXT, TRACE, TRAIN, Input
from compilediag.readers.journal import list_journal_names
from compilediag.readers.storage import (
    CHUNK_BYTES,
    DIGEST_LIMIT_BYTES,
    PlainStream,
    compute_sha256,
    list_names,
    open_regular,
)
from compilediag.receipt.file import write_receipt
from compilediag.receipt.locate import RECEIPT_NAME, RUNS_FOLDER, link_latest
from compilediag.receipt.schema.receipt import Artifact, Receipt

ARTIFACTS = "artifacts"
TRACES, REPORTS, DEPYF = "torch_trace", "tlparse", "depyf"
"""Folders of the artifacts: torch's traces, tlparse's reports, decompiled frames."""
TEXT_LOG_PREFIX = "torch_logs"

_RUN_FOLDER = re.compile(r"\d{8}T\d{6}Z-(.{1,200}?)-\d{1,10}(?:-\d{1,4})?")

PAGE_MARK = '<meta name="generator" content="compilediag">'
"""What the head of a page of ours holds."""
_HEAD_BYTES = 4096

MAX_TEXT_LOG_BYTES = 256 << 20
MAX_FAULTS = 16


def make_run_dir(output: str | None, name: str, *, now: float, pid: int) -> str:
    """Creates the directory of one run and returns its absolute path: `output`, or
    `.compilediag/<utc>-<name>-<pid>`, in which the pid makes the names of runs of one second
    differ. `name`: harmless characters only; `now`: seconds since the epoch.

    Raises:
        UsageError: the directory is in use.
        OutputUnwritable: it cannot be created or written.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    try:
        path = _make_named_dir(output) if output else _make_fresh_dir(f"{stamp}-{name}-{pid}")
        probe = os.path.join(path, ".write-test")
        with open(probe, "xb") as file:
            file.write(b"x")
        os.unlink(probe)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputUnwritable(
            f"the output directory {output or RUNS_FOLDER} cannot be written ({reason}): "
            "choose another with --output"
        ) from error
    return path


def _make_named_dir(output: str) -> str:
    path = os.path.abspath(output)
    os.makedirs(path, exist_ok=True)
    names = os.listdir(path)
    if names:
        of_run = any(name == RECEIPT_NAME or name.startswith("journal-") for name in names)
        raise UsageError(
            f"the output directory {output} is {'already used by a run' if of_run else 'not empty'}"
            ": name a new one, its files stay as they are"
        )
    return path


def _make_fresh_dir(name: str) -> str:
    """Make a folder below `.compilediag`; numbered when one process starts two runs in a second."""
    home = os.path.abspath(RUNS_FOLDER)
    os.makedirs(home, exist_ok=True)
    with contextlib.suppress(FileExistsError), open(os.path.join(home, ".gitignore"), "x") as file:
        file.write("# runs of compilediag; those of `run --record` keep source code\n*\n")
    for index in count(1):
        path = os.path.join(home, name if index == 1 else f"{name}-{index}")
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
            return path
    raise AssertionError("count() does not end")


def get_run_name(folder_name: str) -> str | None:
    """Parse the name of the run in a folder's name that `make_run_dir` made; None for any other."""
    match = _RUN_FOLDER.fullmatch(folder_name)
    return match[1] if match is not None else None


def save_receipt(receipt: Receipt, run_dir: str, *, latest: bool) -> str:
    """Writes the receipt into the run directory and returns its path; `latest`: the directory
    becomes `.compilediag/latest`.

    Raises:
        OutputUnwritable: the file cannot be written.
    """
    path = os.path.join(run_dir, RECEIPT_NAME)
    write_receipt(receipt, path)
    if latest:
        with contextlib.suppress(OutputUnwritable):  # the receipt is there; only its short name not
            link_latest(run_dir)
    return path


def check_file(file: str, mark: str) -> None:
    """Check that `file` may be written: nothing is there, or an older file of ours, whose first
    bytes hold `mark`.

    Raises:
        UsageError: something else is there.
        OutputUnwritable: the folder is not there, or the file cannot be read.
    """
    folder = os.path.dirname(os.path.abspath(file))
    if not os.path.isdir(folder):
        raise OutputUnwritable(f"there is no folder {folder}: make it, or name another file")
    if not os.path.lexists(file):
        return
    if not os.path.isfile(file):
        raise UsageError(f"{file} is not a plain file: name another one")
    try:
        with open(file, "rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except OSError as error:
        raise OutputUnwritable(f"{file} cannot be read: {error.strerror or error}") from error
    if head and mark.encode() not in head:
        raise UsageError(
            f"{file} exists and was not written by compilediag: it stays as it is; name another "
            "file, or remove it"
        )


def list_text_logs(run_dir: str) -> list[str]:
    """List the text logs in a run directory, by path."""
    names = (name for name in list_names(run_dir) if name.startswith(TEXT_LOG_PREFIX))
    return sorted(os.path.join(run_dir, name) for name in names)


def read_joined_logs(paths: Sequence[str], limit_bytes: int | None = None) -> Iterator[bytes]:
    """Read the bytes of all logs one after the other, of each at most the limit."""
    chunks = None if limit_bytes is None else limit_bytes // CHUNK_BYTES
    for path in paths:
        yield from islice(PlainStream(path).read_chunks(), chunks)
        yield b"\n"  # a torn end must not run into the next file


def read_tail(path: str, limit_bytes: int) -> str | None:
    """Read the last bytes of a file as text; None if it is not there or empty."""
    file = open_regular(path)
    if file is None:
        return None
    with file:
        file.seek(max(os.fstat(file.fileno()).st_size - limit_bytes, 0))
        return file.read(limit_bytes).decode("utf-8", "replace") or None


def read_attach_faults(run_dir: str) -> list[str]:
    """Read the messages of processes that compilediag could not attach to."""
    names = sorted(name for name in list_names(run_dir) if name.startswith("attach-fault-"))
    texts = (read_tail(os.path.join(run_dir, name), 500) for name in names[:MAX_FAULTS])
    return [" ".join(text.split()) for text in texts if text]


def count_bytes_written(run_dir: str) -> int:
    """Count the bytes of all journals and the text log."""
    total = 0
    with contextlib.suppress(OSError), os.scandir(run_dir) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                total += entry.stat(follow_symlinks=False).st_size
    return total


# --- held open while the target runs -----------------------------------------------------------

LOOK_EVERY_S = 0.5
MAX_OPEN_FILES = 256


class RunFiles:
    """The files of one run directory, held open from the moment they were seen there.

    Invariant: a file that is open here stays readable when the target unlinks it.
    """

    def __init__(self, run_dir: str) -> None:
        self._run_dir = run_dir
        self._files: dict[str, BinaryIO] = {}

    def open_new(self) -> None:
        """Open the files that are new."""
        for path in (*list_journal_names(self._run_dir), *list_text_logs(self._run_dir)):
            name = os.path.basename(path)
            if name not in self._files and len(self._files) < MAX_OPEN_FILES:
                file = open_regular(os.path.join(self._run_dir, name))
                if file is not None:
                    self._files[name] = file

    def close(self) -> None:
        """Lets go of all files."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    @property
    def in_place(self) -> bool:
        """The directory and every file in it are those that were seen."""
        if not os.path.isdir(self._run_dir):
            return False
        for name, file in self._files.items():
            try:
                there = os.stat(os.path.join(self._run_dir, name), follow_symlinks=False)
            except OSError:
                return False
            if not os.path.samestat(there, os.fstat(file.fileno())):
                return False
        return True

    def save_copies(self, name: str, now: float) -> str:
        """Copy the files to a directory, in the place of the lost one where nothing is now, and
        return its path.

        Raises:
            OSError: there is no place for it.
        """
        folder = self._make_folder(name, now)
        for file_name, file in self._files.items():
            file.seek(0)
            with open(os.path.join(folder, file_name), "wb") as copy:
                shutil.copyfileobj(file, copy)
        return folder

    def _make_folder(self, name: str, now: float) -> str:
        home = os.path.dirname(self._run_dir)
        ours = os.path.basename(home) == RUNS_FOLDER  # made again; no folder of the program is
        with contextlib.suppress(OSError):
            if os.path.isdir(os.path.dirname(home) if ours else home):
                os.makedirs(self._run_dir)
                return self._run_dir
        with contextlib.suppress(OSError, CompilediagError):
            return make_run_dir(None, name, now=now, pid=os.getpid())
        return tempfile.mkdtemp(prefix="compilediag-")


# --- as links of the receipt -------------------------------------------------------------------

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
    (f"{ARTIFACTS}/{DEPYF}/", "depyf"),
    ("attach-fault-", "fault"),
)


def list_artifacts(run_dir: str) -> tuple[Artifact, ...]:
    """List the files of a run directory, at most `ARTIFACT_LIMIT`: journals and logs first."""
    with os.scandir(run_dir) as entries:
        paths = sorted(
            entry.path
            for entry in entries
            if entry.is_file(follow_symlinks=False) and entry.name.endswith((".jsonl", ".txt"))
        )
    paths += list_reports(run_dir)
    artifacts = os.path.join(run_dir, ARTIFACTS)
    for folder, below, names in os.walk(artifacts):
        if folder == artifacts and REPORTS in below:
            below.remove(REPORTS)
        paths += [os.path.join(folder, name) for name in sorted(names)]
    plain = [path for path in paths if not os.path.islink(path)]
    return tuple(make_artifact(path, run_dir) for path in plain[:ARTIFACT_LIMIT])


def list_reports(run_dir: str) -> list[str]:
    """List the files of tlparse's reports in a run directory that a receipt links."""
    folder = os.path.join(run_dir, ARTIFACTS, REPORTS)
    try:
        reports = sorted((name for name in os.listdir(folder) if name.isdecimal()), key=int)
    except OSError:
        return []
    paths = [os.path.join(folder, report, name) for report in reports for name in REPORT_ROLES]
    return [path for path in paths if os.path.isfile(path)]


def make_artifact(path: str, run_dir: str) -> Artifact:
    """Make the record of a file of a run directory, with its size in bytes and its digest."""
    uri = os.path.relpath(path, run_dir)
    try:
        size = os.path.getsize(path)
    except OSError:
        size = None
    kind = "application/x-ndjson" if path.endswith(".jsonl") else mimetypes.guess_type(path)[0]
    return Artifact(
        role=infer_role(uri),
        uri=uri,
        media_type=kind or "text/plain",
        bytes=size,
        sha256=_compute_digest(path, size),
    )


def infer_role(uri: str) -> str:
    """Infer the role of a file from its path in the run directory."""
    path = PurePath(uri)
    if path.parts[:2] == (ARTIFACTS, REPORTS):
        return REPORT_ROLES.get(path.name, "other")
    roles = (role for prefix, role in _ROLES_BY_PREFIX if path.as_posix().startswith(prefix))
    return next(roles, "other")


def iterate_source_artifacts(sources: Sequence[Input], folder: str) -> Iterator[Artifact]:
    """Iterate over the traces and logs that a receipt in `folder` was made of, at most
    `ARTIFACT_LIMIT`."""
    linked = [source for source in sources if source.kind in _SOURCE_ROLES]
    for source in linked[:ARTIFACT_LIMIT]:
        try:
            size = os.path.getsize(source.path)
        except OSError:
            continue
        yield Artifact(
            role=_SOURCE_ROLES[source.kind],
            uri=os.path.relpath(source.path, folder),
            media_type="text/plain",
            bytes=size,
            sha256=_compute_digest(source.path, size),
        )


def _compute_digest(path: str, size: int | None) -> str | None:
    small = size is not None and size <= DIGEST_LIMIT_BYTES
    if not small or (file := open_regular(path)) is None:
        return None
    with file:
        return compute_sha256(file)
