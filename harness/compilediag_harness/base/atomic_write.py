"""Atomic file writes: readers see the old file or the new one, whatever kills the writer.

The content goes to a temporary file in the same folder, which one move puts in its place.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

TEMPORARY_SUFFIX = ".tmp"

_MAX_NAME = 100


def write(path: str | os.PathLike[str], pieces: Iterable[bytes], *, flushed: bool = True) -> int:
    """Replace a file by the pieces, one after the other. Returns the number of bytes.

    `flushed` makes the file outlive a power failure from now on, which costs a wait for the disk:
    without it, a file that was not there before may be missing or empty after one.

    Raises:
        OSError: the folder or the disk does not take it; the file is left as it was.
    """
    # Invariant: the temporary file lies beside it: `os.replace` moves within one file system.
    target = os.path.realpath(path)  # a link stays a link
    folder, name = os.path.split(target)
    unique = f"{os.getpid()}-{os.urandom(4).hex()}{TEMPORARY_SUFFIX}"
    temporary = os.path.join(folder, make_temporary_prefix(name) + unique)
    size = 0
    try:
        with open(temporary, "xb") as stream:
            for piece in pieces:
                size += stream.write(piece)
            if flushed:
                stream.flush()
                os.fsync(stream.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    if flushed:  # the move itself; not every file system lets a folder be flushed
        with contextlib.suppress(OSError):
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
    return size


def make_temporary_prefix(name: str) -> str:
    """Make the beginning of the names of temporary files for a file of that name."""
    return f".{name[:_MAX_NAME]}-"
