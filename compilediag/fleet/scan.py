"""Which files below a folder may be receipts, and how each looks from outside."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from compilediag.fleet.entry import Problem
from compilediag.receipt.locate import RECEIPT_NAME, RUNS_FOLDER

SUFFIX = ".json"


class Found(NamedTuple):
    """A file that may be a receipt."""

    path: str
    """Below the folder, with "/" between its parts."""
    signature: bytes
    """Differs after every change of the file: size, both times in nanoseconds, and its number.

    The time of change is the system's: who sets the other one back cannot set this one.
    """
    changed_s: float


def scan(folder: str) -> tuple[list[Found], list[Problem]]:
    """Every candidate in the order of paths, and the folders that could not be read.

    Candidates are JSON files. Of a folder below `folder` that holds a `receipt.json`, only that
    counts: it is the folder of a run, and the rest are its artifacts. Hidden files and folders are
    left out, but for `.compilediag`; links to folders, `latest` among them, are not followed.
    """
    found: list[Found] = []
    problems: list[Problem] = []
    waiting = [""]
    while waiting:
        below = waiting.pop()
        try:
            files, folders = _listed(os.path.join(folder, below))
        except OSError as error:
            problems.append(Problem(below or ".", "unreadable", error.strerror or str(error)))
            continue
        if below and RECEIPT_NAME in files:
            files, folders = {RECEIPT_NAME: files[RECEIPT_NAME]}, []
        prefix = f"{below}/" if below else ""
        waiting += [prefix + name for name in folders]
        found += _looked_at(files, prefix, problems)
    found.sort()
    return found, problems


def look_at(folder: str, path: str) -> bytes | None:
    """The signature of one file; None where it is gone."""
    try:
        return _signature(os.stat(os.path.join(folder, path)))
    except OSError:
        return None


def _listed(folder: str) -> tuple[dict[str, os.DirEntry[str]], list[str]]:
    files: dict[str, os.DirEntry[str]] = {}
    folders: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith(".") or entry.name == RUNS_FOLDER:
                    folders.append(entry.name)
            elif entry.name.endswith(SUFFIX) and not entry.name.startswith("."):
                files[entry.name] = entry
    return files, folders


def _looked_at(
    files: dict[str, os.DirEntry[str]], prefix: str, problems: list[Problem]
) -> Iterator[Found]:
    for name, entry in files.items():
        try:
            if entry.is_file():
                stat = entry.stat()
                changed = max(stat.st_mtime, stat.st_ctime)
                yield Found(prefix + name, _signature(stat), changed)
        except OSError as error:
            problems.append(Problem(prefix + name, "unreadable", error.strerror or str(error)))


def _signature(stat: os.stat_result) -> bytes:
    return b"%d %d %d %d" % (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
