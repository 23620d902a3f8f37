"""Reads what the processes of a run left in its directory, with a cap on everything."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import BinaryIO

CHUNK_BYTES = 1 << 20
TEXT_LOG_LIMIT_BYTES = 256 << 20
FAULT_LIMIT = 16


def open_plain(path: str) -> BinaryIO | None:
    """A regular file opened for reading; None for anything else (a link, a pipe, nothing)."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return os.fdopen(fd, "rb")
    os.close(fd)
    return None


def chunks(path: str) -> Iterator[bytes]:
    """The bytes of a file in pieces, at most `TEXT_LOG_LIMIT_BYTES`; nothing if it is not there."""
    file = open_plain(path)
    if file is None:
        return
    with file:
        for _ in range(TEXT_LOG_LIMIT_BYTES // CHUNK_BYTES):
            piece = file.read(CHUNK_BYTES)
            if not piece:
                return
            yield piece


def tail(path: str, limit_bytes: int) -> str | None:
    """The last bytes of a file as text; None if it is not there or empty."""
    file = open_plain(path)
    if file is None:
        return None
    with file:
        file.seek(max(os.fstat(file.fileno()).st_size - limit_bytes, 0))
        return file.read(limit_bytes).decode("utf-8", "replace") or None


def attach_faults(run_dir: str) -> list[str]:
    """What processes wrote that could not be attached."""
    try:
        names = sorted(name for name in os.listdir(run_dir) if name.startswith("attach-fault-"))
    except OSError:
        return []
    told = (tail(os.path.join(run_dir, name), 500) for name in names[:FAULT_LIMIT])
    return [" ".join(text.split()) for text in told if text]


def dropped_markers(run_dir: str) -> int:
    """How many processes said that they dropped records."""
    try:
        return sum(name.endswith(".dropped") for name in os.listdir(run_dir))
    except OSError:
        return 0


def bytes_written(run_dir: str) -> int:
    """Size of all journals and the text log."""
    total = 0
    try:
        for entry in os.scandir(run_dir):
            if entry.is_file(follow_symlinks=False):
                total += entry.stat(follow_symlinks=False).st_size
    except OSError:
        return total
    return total
