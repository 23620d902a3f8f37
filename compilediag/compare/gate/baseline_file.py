"""The baseline's file: found from the working directory, read, and written whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from compilediag.compare.gate.baseline import LOCK_NAME, Baseline, format_lock, parse_lock
from compilediag.errors import BaselineUnreadable, OutputUnwritable
from compilediag.receipt.locate import AnyPath
from compilediag_harness.base import atomic_write

MAX_BYTES = 16 * 1024 * 1024  #: A larger file is not read: no baseline of ours comes near.


def find_lock(start: AnyPath) -> str | None:
    """Find the baseline of a folder: in it, or above it up to the root of its repository."""
    folder = Path(os.path.abspath(start))
    folders = [folder, *folder.parents]
    root = next((index for index, path in enumerate(folders) if (path / ".git").exists()), 0)
    files = (str(path / LOCK_NAME) for path in folders[: root + 1])
    return next((file for file in files if os.path.lexists(file)), None)


def read_lock(path: AnyPath) -> Baseline:
    """Read the baseline in a file.

    Raises:
        BaselineUnreadable: it is not there, cannot be opened, or is no baseline.
    """
    try:
        if os.stat(path).st_size > MAX_BYTES:
            raise BaselineUnreadable(
                f"{path} is larger than {MAX_BYTES >> 20} MiB: this is no baseline"
            )
        with open(path, encoding="utf-8") as stream:
            text = stream.read().removeprefix("\ufeff")
    except FileNotFoundError as error:
        raise BaselineUnreadable(
            f"there is no baseline {path}: `compilediag gate --update --baseline {path}` makes one"
        ) from error
    except OSError as error:
        raise BaselineUnreadable(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BaselineUnreadable(f"{path} is no text: this is no baseline") from error
    return parse_lock(text, str(path))


def write_lock(path: AnyPath, lock: Baseline) -> bool:
    """Write a baseline; False where the file holds just that already.

    Raises:
        OutputUnwritable: the disk does not take it; the file is left as it was.
    """
    text = format_lock(lock)
    with contextlib.suppress(OSError), open(path, "rb") as stream:
        if stream.read() == text.encode("ascii"):
            return False
    write_whole(path, text)
    return True


def write_whole(path: AnyPath, text: str) -> None:
    """Put a text in the place of a file in one move, so that no reader sees half of it.

    Raises:
        OutputUnwritable: the folder or the disk does not take it; the file is left as it was.
    """
    try:
        atomic_write.write(path, (text.encode("utf-8", "backslashreplace"),))
    except OSError as error:
        raise OutputUnwritable(f"{path} cannot be written: {error.strerror or error}") from error
