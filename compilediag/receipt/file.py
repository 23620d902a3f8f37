"""Receipts on disk: written whole or not at all, and read back.

Paths are text here: importing pathlib would cost every command that reads a receipt milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

import msgspec

from compilediag.errors import OutputUnwritable, ReceiptUnreadable
from compilediag.receipt.locate import AnyPath, find_receipt
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.versions import is_present, receipt_of

LARGEST_BYTES = 64 * 1024 * 1024
"""A larger file is not read: no receipt of ours comes near."""

STALE_S = 3600.0
"""A temporary file this old was left by a writer that was killed."""


def write_receipt(
    receipt: Receipt, path: AnyPath, *, now_s: float | None = None, flushed: bool = True
) -> int:
    """Writes `receipt` to `path`, atomically, and returns its size in bytes.

    Temporary files of killed writers in the same folder are removed when they are an hour old at
    `now_s` (seconds since the epoch, as file times are). `flushed` makes it outlive a power
    failure: without, it is to be one of many that can be made again from what they were made of.

    Raises:
        OutputUnwritable: the folder or the disk does not take it; an older file is left as it was.
    """
    # Whoever only reads receipts does without these.
    from compilediag.receipt.spelling import pieces_of
    from compilediag_harness.base import atomic_write

    folder, name = os.path.split(os.path.abspath(path))
    try:
        if not _made(folder):
            start = atomic_write.temporary_start(name)
            _sweep(folder, start, time.time() if now_s is None else now_s)
        return atomic_write.write(path, pieces_of(receipt), flushed=flushed)
    except OSError as error:
        raise OutputUnwritable(
            f"The receipt cannot be written to {path}: {error.strerror or error}."
        ) from error


def _made(folder: str) -> bool:
    """Whether the folder is new."""
    try:
        os.mkdir(folder)
    except FileNotFoundError:
        os.makedirs(folder, exist_ok=True)
    except FileExistsError:
        return False
    return True


def _sweep(folder: str, start: str, now_s: float) -> None:
    with os.scandir(folder) as entries:
        found = [item for item in entries if item.name.startswith(start)]
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
