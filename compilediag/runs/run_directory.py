"""The directory of a run: made before the target starts, never one that holds something else; what
its processes left in it, read with a limit on everything; and files that a user names for ours."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from itertools import count, islice

from compilediag.errors import OutputUnwritable, UsageError
from compilediag.readers.storage import CHUNK_BYTES, join, names_in, open_regular, open_stream
from compilediag.receipt.file import write_receipt
from compilediag.receipt.locate import RECEIPT_NAME, RUNS_FOLDER, point_latest
from compilediag.receipt.schema.receipt import Receipt

ARTIFACTS = "artifacts"
TRACES, REPORTS, DEPYF = "torch_trace", "tlparse", "depyf"
"""Folders of the artifacts: torch's traces, tlparse's reports, decompiled frames."""
TEXT_LOG_PREFIX = "torch_logs"

_RUN_FOLDER = re.compile(r"\d{8}T\d{6}Z-(.{1,200}?)-\d{1,10}(?:-\d{1,4})?")

PAGE = '<meta name="generator" content="compilediag">'
"""What the head of a page of ours holds."""
_HEAD_BYTES = 4096

MAX_TEXT_LOG_BYTES = 256 << 20
MAX_FAULTS = 16


def make_run_dir(output: str | None, name: str, *, now: float, pid: int) -> str:
    """Creates the directory of one run and returns its absolute path.

    Args:
        output: the option of the user; None for `.compilediag/<utc>-<name>-<pid>`.
        name: harmless characters only.
        now: seconds since the epoch.
        pid: makes the names of runs started in the same second differ.

    Raises:
        UsageError: the directory is in use.
        OutputUnwritable: it cannot be created or written.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    try:
        path = _named_dir(output) if output else _fresh_dir(f"{stamp}-{name}-{pid}")
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


def _named_dir(output: str) -> str:
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


def _fresh_dir(name: str) -> str:
    """A new folder below `.compilediag`; numbered when one process starts two runs in a second."""
    home = os.path.abspath(RUNS_FOLDER)
    os.makedirs(home, exist_ok=True)
    with contextlib.suppress(FileExistsError), open(os.path.join(home, ".gitignore"), "x") as file:
        file.write("# runs of compilediag: no source code\n*\n")
    for index in count(1):
        path = os.path.join(home, name if index == 1 else f"{name}-{index}")
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
            return path
    raise AssertionError("count() does not end")


def named_run(folder_name: str) -> str | None:
    """The name of the run in a folder's name that `make_run_dir` made; None for any other."""
    found = _RUN_FOLDER.fullmatch(folder_name)
    return found[1] if found is not None else None


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
            point_latest(run_dir)
    return path


def check_file(file: str, mark: str) -> None:
    """An older file of ours is replaced; anything else there stays.

    Args:
        file: its path.
        mark: what the first bytes of ours hold.

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


def text_logs(run_dir: str) -> list[str]:
    """Paths of the text logs in a run directory, which may be a URI."""
    return sorted(
        join(run_dir, name) for name in names_in(run_dir) if name.startswith(TEXT_LOG_PREFIX)
    )


def joined_logs(paths: Sequence[str], limit_bytes: int | None = None) -> Iterator[bytes]:
    """The bytes of all logs, of each at most the limit."""
    chunks = None if limit_bytes is None else limit_bytes // CHUNK_BYTES
    for path in paths:
        yield from islice(open_stream(path).chunks(), chunks)
        yield b"\n"  # a torn end must not run into the next file


def tail(path: str, limit_bytes: int) -> str | None:
    """The last bytes of a file as text; None if it is not there or empty."""
    file = open_regular(path)
    if file is None:
        return None
    with file:
        file.seek(max(os.fstat(file.fileno()).st_size - limit_bytes, 0))
        return file.read(limit_bytes).decode("utf-8", "replace") or None


def attach_faults(run_dir: str) -> list[str]:
    """Messages of processes that compilediag could not attach to."""
    names = sorted(name for name in names_in(run_dir) if name.startswith("attach-fault-"))
    texts = (tail(os.path.join(run_dir, name), 500) for name in names[:MAX_FAULTS])
    return [" ".join(text.split()) for text in texts if text]


def dropped_markers(run_dir: str) -> int:
    """The count of processes that dropped records."""
    return sum(name.endswith(".dropped") for name in names_in(run_dir))


def bytes_written(run_dir: str) -> int:
    """Size of all journals and the text log."""
    total = 0
    with contextlib.suppress(OSError), os.scandir(run_dir) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                total += entry.stat(follow_symlinks=False).st_size
    return total
