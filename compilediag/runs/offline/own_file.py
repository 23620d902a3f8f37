"""A file that a command may write: new, or one that compilediag wrote before."""

from __future__ import annotations

import os

from compilediag.errors import OutputUnwritable, UsageError

PAGE = '<meta name="generator" content="compilediag">'
"""What the head of a page of ours holds."""
_HEAD_BYTES = 4096


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
