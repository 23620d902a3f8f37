"""Receipts on disk: written whole or not at all, and read back.

A receipt is written to a temporary file in its own folder, flushed to the disk and renamed, so
that a reader sees the old file or the new one, whatever kills the writer.

Paths are text here: importing pathlib would cost every command that reads a receipt milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

import msgspec

from compilediag.errors import OutputUnwritable, ReceiptUnreadable
from compilediag.receipt.history import is_older, is_present, receipt_of
from compilediag.receipt.locate import AnyPath, find_receipt
from compilediag.receipt.record import to_json
from compilediag.receipt.schema import MIN_READER_VERSION, SCHEMA_VERSION, Receipt

LARGEST_BYTES = 64 * 1024 * 1024
"""A larger file is not read: no receipt of ours comes near."""

STALE_S = 3600.0
"""A temporary file this old was left by a writer that was killed."""

_TEMPORARY = ".receipt-"
_END = b"\n"


def write_receipt(receipt: Receipt, path: AnyPath, *, now_s: float | None = None) -> int:
    """Writes `receipt` to `path`, atomically, and returns its size in bytes.

    Temporary files of killed writers in the same folder are removed when they are an hour old at
    `now_s` (seconds since the epoch, as file times are).

    Raises:
        OutputUnwritable: the folder or the disk does not take it; an older file is left as it was.
    """
    content = _formatted(receipt)
    folder = os.path.dirname(os.path.abspath(path))
    try:
        os.makedirs(folder, exist_ok=True)
        _sweep(folder, time.time() if now_s is None else now_s)
        _replace(os.fspath(path), folder, content)
    except OSError as error:
        raise OutputUnwritable(
            f"The receipt cannot be written to {path}: {error.strerror or error}."
        ) from error
    return len(content) + len(_END)


def encoded(receipt: Receipt) -> bytes:
    """The bytes of the file: JSON, one space of indentation, a newline at the end.

    A receipt of an older version is spelled as this one spells it, and says so; one of a newer
    version stays what it is.
    """
    return _formatted(receipt) + _END


def _formatted(receipt: Receipt) -> bytes:
    """All but the end: a large receipt would be there a second time for one character more."""
    if is_older(receipt):
        receipt = msgspec.structs.replace(
            receipt, schema_version=SCHEMA_VERSION, min_reader_version=MIN_READER_VERSION
        )
    return msgspec.json.format(to_json(receipt), indent=1)


def _replace(path: str, folder: str, content: bytes) -> None:
    temporary = os.path.join(folder, f"{_TEMPORARY}{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        with open(temporary, "xb") as stream:
            stream.write(content)
            stream.write(_END)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _flush_folder(folder)


def _flush_folder(folder: str) -> None:
    """The rename itself reaches the disk; not every file system lets a folder be flushed."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _sweep(folder: str, now_s: float) -> None:
    with os.scandir(folder) as entries:
        found = [item for item in entries if item.name.startswith(_TEMPORARY)]
    for leftover in found:
        with contextlib.suppress(OSError):
            if leftover.name.endswith(".tmp") and now_s - leftover.stat().st_mtime > STALE_S:
                os.unlink(leftover.path)


def read_receipt(path: AnyPath | None = None) -> Receipt:
    """The receipt at `path`: a receipt file or a run directory; by default that of the last run.

    Raises:
        ReceiptNotFound: nothing is there.
        ReceiptUnreadable: it cannot be opened, or is not a receipt.
        ReceiptTooNew: a newer major version wrote it.
    """
    file = find_receipt(path)
    try:
        if os.stat(file).st_size > LARGEST_BYTES:
            raise ReceiptUnreadable(
                f"{file} is larger than {LARGEST_BYTES >> 20} MiB: this is no receipt."
            )
        with open(file, "rb") as stream:
            content = stream.read()
    except OSError as error:
        raise ReceiptUnreadable(f"{file} cannot be read: {error.strerror or error}.") from error
    return receipt_from(content, file)


def receipt_from(content: bytes, name: str) -> Receipt:
    """The bytes of a file as a Receipt; `name` is what errors call it, a path where there is one.

    Raises:
        ReceiptUnreadable: it is not a receipt.
        ReceiptTooNew: a newer major version wrote it.
    """
    try:
        receipt = msgspec.json.decode(content, type=Receipt)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Another version's, with fields of others, or no receipt at all: the long way tells.
        return receipt_of(_decoded(content, name), name)
    return receipt if is_present(receipt) else receipt_of(_decoded(content, name), name)


def _decoded(content: bytes, name: str) -> Any:
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        from compilediag.receipt.loose_file import decode

        return decode(content, name)
