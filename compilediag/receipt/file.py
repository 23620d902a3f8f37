"""Receipts on disk: written whole or not at all, found by run directory, and read back.

A receipt is written to a temporary file in its own folder, flushed to the disk and renamed, so
that a reader sees the old file or the new one, whatever kills the writer.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

import msgspec

from compilediag.errors import OutputUnwritable, ReceiptNotFound, ReceiptUnreadable
from compilediag.receipt.history import receipt_of
from compilediag.receipt.record import as_plain
from compilediag.receipt.schema import Receipt

RECEIPT_NAME = "receipt.json"

RUNS_FOLDER = ".compilediag"

LATEST = "latest"
"""Link to the last run's directory; a text file with its name where links cannot be made."""

LARGEST_BYTES = 64 * 1024 * 1024
"""A larger file is not read: no receipt of ours comes near."""

STALE_S = 3600.0
"""A temporary file this old was left by a writer that was killed."""

_TEMPORARY = ".receipt-"


def write_receipt(receipt: Receipt, path: Path, *, now_s: float | None = None) -> int:
    """Writes `receipt` to `path`, atomically, and returns its size in bytes.

    Temporary files of killed writers in the same folder are removed when they are an hour old at
    `now_s` (seconds since the epoch, as file times are).

    Raises:
        OutputUnwritable: the folder or the disk does not take it; an older file is left as it was.
    """
    content = encoded(receipt)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path.parent, time.time() if now_s is None else now_s)
        _replace(path, content)
    except OSError as error:
        raise OutputUnwritable(
            f"The receipt cannot be written to {path}: {error.strerror or error}."
        ) from error
    return len(content)


def encoded(receipt: Receipt) -> bytes:
    """The bytes of the file: JSON, one space of indentation, a newline at the end."""
    return msgspec.json.format(msgspec.json.encode(as_plain(receipt)), indent=1) + b"\n"


def _replace(path: Path, content: bytes) -> None:
    temporary = path.parent / f"{_TEMPORARY}{os.getpid()}-{os.urandom(4).hex()}.tmp"
    try:
        with temporary.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    _flush_folder(path.parent)


def _flush_folder(folder: Path) -> None:
    """The rename itself reaches the disk; not every file system lets a folder be flushed."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _sweep(folder: Path, now_s: float) -> None:
    for leftover in folder.glob(f"{_TEMPORARY}*.tmp"):
        with contextlib.suppress(OSError):
            if now_s - leftover.stat().st_mtime > STALE_S:
                leftover.unlink()


def read_receipt(path: str | Path | None = None) -> Receipt:
    """The receipt at `path`: a receipt file or a run directory; by default that of the last run.

    Raises:
        ReceiptNotFound: nothing is there.
        ReceiptUnreadable: it cannot be opened, or is not a receipt.
        ReceiptTooNew: a newer major version wrote it.
    """
    file = find_receipt(path)
    try:
        if file.stat().st_size > LARGEST_BYTES:
            raise ReceiptUnreadable(
                f"{file} is larger than {LARGEST_BYTES >> 20} MiB: this is no receipt."
            )
        content = file.read_bytes()
    except OSError as error:
        raise ReceiptUnreadable(f"{file} cannot be read: {error.strerror or error}.") from error
    return receipt_of(_decoded(content, file), str(file))


def _decoded(content: bytes, file: Path) -> Any:
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decoded_leniently(content, file)


def _decoded_leniently(content: bytes, file: Path) -> Any:
    """JSON as other writers spell it: NaN and infinities (null here), bytes that are no UTF-8."""
    import json

    try:
        text = content.decode("utf-8-sig", "replace")
        return json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise ReceiptUnreadable(f"{file} is not readable as JSON: {error}.") from error


def find_receipt(argument: str | Path | None = None, cwd: Path | None = None) -> Path:
    """The receipt file meant by a command's argument: a receipt file, a run directory, a folder
    that holds `.compilediag`, or nothing for the last run below `cwd`.

    Raises:
        ReceiptNotFound: there is none.
    """
    cwd = Path.cwd() if cwd is None else cwd
    if argument is None:
        return _latest_in(cwd)
    path = cwd / argument
    if path.name == LATEST and path.parent.name == RUNS_FOLDER:
        return _latest_in(path.parent.parent)
    if path.is_file():
        return path
    if not path.is_dir():
        raise ReceiptNotFound(f"There is no receipt at {argument}.")
    inside = path / RECEIPT_NAME
    if inside.is_file():
        return inside
    if (path / RUNS_FOLDER / LATEST).exists() or (path / LATEST).exists():
        return _latest_in(path if (path / RUNS_FOLDER).is_dir() else path.parent)
    raise ReceiptNotFound(f"There is no {RECEIPT_NAME} in {argument}.")


def _latest_in(folder: Path) -> Path:
    runs = folder / RUNS_FOLDER
    run = latest_run(runs)
    if run is None:
        raise ReceiptNotFound(
            f"There is no run below {runs}: start one with `compilediag run SCRIPT`, "
            "or name a receipt."
        )
    found = run / RECEIPT_NAME
    if not found.is_file():
        raise ReceiptNotFound(f"The last run, {run}, has no {RECEIPT_NAME}.")
    return found


def latest_run(runs: Path) -> Path | None:
    """The directory `latest` names; None when nothing is there, or it names something outside."""
    latest = runs / LATEST
    if latest.is_dir():
        return latest.resolve()
    try:
        name = latest.read_text(encoding="utf-8")[:4096].strip()
    except (OSError, UnicodeDecodeError):
        return None
    # Only a plain name: the file is no way to lead a reader elsewhere.
    if not name or name != os.path.basename(name) or name in (".", ".."):
        return None
    return runs / name


def point_latest(run_directory: Path) -> None:
    """Makes `latest`, beside `run_directory`, name it: a link, or a text file with its name.

    Raises:
        OutputUnwritable: neither can be made.
    """
    latest = run_directory.parent / LATEST
    temporary = run_directory.parent / f".latest-{os.getpid()}-{os.urandom(4).hex()}.tmp"
    try:
        try:
            temporary.symlink_to(run_directory.name, target_is_directory=True)
        except (OSError, NotImplementedError):
            temporary.write_text(run_directory.name + "\n", encoding="utf-8")
        temporary.replace(latest)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise OutputUnwritable(f"{latest} cannot be made: {error.strerror or error}.") from error
