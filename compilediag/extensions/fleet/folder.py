"""The receipts of a folder, URI or table as entries. The files are the truth: the index beside them
only saves reading them again."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from compilediag.errors import UsageError
from compilediag.extensions.fleet import index
from compilediag.extensions.fleet.entry import Entry, Problem
from compilediag.extensions.fleet.index import NotAnIndex, Row
from compilediag.extensions.fleet.scan import FoundFile, read_file, read_uri, scan, signature_of
from compilediag.readers.storage import is_uri

TABLE_SUFFIX = ".parquet"

MIN_INDEXED = 50
"""Fewer files are read each time: that takes milliseconds, and leaves nothing in the folder."""

SETTLED_S = 2.0
"""A file that changed less long ago may change again without looking different from outside."""

Progress = Callable[[int, int], None]
"""Called with how many of how many files have been read."""

Wanted = Callable[[str, float | None], bool]
"""Whether a receipt is wanted, by its lane's name and its time."""


class Fleet(NamedTuple):
    """The receipts of a folder."""

    root: str
    """The folder as it was named; paths of entries are relative to it."""
    entries: tuple[Entry, ...]
    """In the order of time; those without a time come first."""
    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()
    """What a user may want to know of how they were read."""
    files_read: int = 0
    """How many files had to be read; the index had the others."""


def every(lane: str, created_s: float | None) -> bool:
    """Every receipt is wanted."""
    return True


def fleet_at(
    location: str, wanted: Wanted = every, progress: Progress = lambda done, total: None
) -> Fleet:
    """The wanted receipts of a folder, a table (.parquet) or a URI.

    Raises:
        UsageError: there is nothing at the location, or what it needs is not installed.
        ReceiptUnreadable: a table is not one of ours.
    """
    if location.endswith(TABLE_SUFFIX) and not os.path.isdir(location):
        from compilediag.extensions.fleet.table import read_table

        return gathered(location, _wanted(read_table(location), wanted))
    if is_uri(location):
        items = list(read_uri(location))
        return gathered(location, _wanted(items, wanted), files_read=len(items))
    return fleet_of(location, wanted, progress)


def fleet_of(
    folder: str, wanted: Wanted = every, progress: Progress = lambda done, total: None
) -> Fleet:
    """Every wanted receipt in and below a folder, and what the other files are.

    Each file is looked at from outside, and read where it changed since it was indexed. The index
    is brought up to date where that is possible; where not, the answer is the same.

    Raises:
        UsageError: there is no such folder.
    """
    if not os.path.isdir(folder):
        raise UsageError(f"there is no folder {folder}: name one that holds receipts")
    found, problems = scan(folder)
    known = _indexed(folder, found, wanted)
    notes = [known.note] if known.note else []
    rows: list[Row] = []
    read: list[Entry | Problem] = []
    now = time.time()
    for done, file in enumerate(known.changed):
        progress(done, len(known.changed))
        item = read_file(folder, file.path)
        read.append(item)
        settled = now - file.changed_s > SETTLED_S
        row = index.row_of(item, file.signature if settled else b"")
        if row is not None and not (isinstance(item, Problem) and item.kind == "unreadable"):
            rows.append(row)
    if known.writable and len(found) >= MIN_INDEXED and (rows or known.gone):
        try:
            index.write_rows(folder, rows, known.gone)
        except (sqlite3.Error, NotAnIndex) as error:
            notes.append(f"the index cannot be written, so the next call reads again: {error}")
    items = [*problems, *known.items, *_wanted(read, wanted)]
    return gathered(folder, items, notes, len(known.changed))


def newest(folder: str, lane: str, count: int) -> Fleet | None:
    """The newest receipts of a lane from the index alone, without a look at every file.

    The files of these receipts are looked at. None where the index has no answer: there is none, it
    is damaged or of another version, it has no such lane, or one of these files has changed.
    """
    try:
        rows = index.newest_rows(folder, lane, count)
        items = [index.item_of(row, {}) for row in rows]
    except (NotAnIndex, sqlite3.Error, msgspec.MsgspecError, TypeError, ValueError, OSError):
        return None
    if not rows or any(signature_of(folder, row.path) != row.signature for row in rows):
        return None
    note = "as indexed: receipts that came since the index was made are not in it"
    return gathered(folder, items, [note])


class _Indexed(NamedTuple):
    """What the index holds of the files that were found."""

    items: list[Entry | Problem]
    """Of files that look as they did, those that are wanted."""
    changed: list[FoundFile]
    """Files that are not in it as they look now."""
    gone: list[str]
    """Files in it that do not exist any more."""
    note: str | None = None
    writable: bool = True
    """Whether an index of ours may be written."""


def _indexed(folder: str, found: Sequence[FoundFile], wanted: Wanted) -> _Indexed:
    pending = {file.path: file for file in found}
    known = _Indexed([], [], [])
    shared: dict[object, object] = {}
    try:
        for row in index.read_rows(folder):
            file = pending.get(row.path)
            if file is None:
                known.gone.append(row.path)
            elif file.signature == row.signature:
                del pending[row.path]
                if row.lane is None or wanted(row.lane, row.created_s):
                    known.items.append(index.item_of(row, shared))
    except NotAnIndex as error:
        return _Indexed([], list(found), [], str(error), writable=False)
    except (sqlite3.OperationalError, OSError) as error:
        note = f"{index.INDEX_NAME} cannot be read: {error}"
        return _Indexed([], list(found), [], note, writable=False)
    except (sqlite3.DatabaseError, msgspec.MsgspecError, TypeError, ValueError):
        index.delete_index(folder)
        return _Indexed([], list(found), [], note="the index was damaged: every file was read")
    return known._replace(changed=list(pending.values()))


def _wanted(items: Iterable[Entry | Problem], wanted: Wanted) -> list[Entry | Problem]:
    return [
        item
        for item in items
        if isinstance(item, Problem) or wanted(item.lane.name, item.created_s)
    ]


def gathered(
    root: str, items: Iterable[Entry | Problem], notes: Sequence[str] = (), files_read: int = 0
) -> Fleet:
    """Entries in the order of time, each receipt once; copies are among the problems."""
    entries: dict[str, Entry] = {}
    problems: list[Problem] = []
    for item in sorted(items, key=lambda item: item.path):
        if isinstance(item, Problem):
            problems.append(item)
        elif (first := entries.setdefault(item.receipt_id, item)) is not item:
            problems.append(Problem(item.path, "copy", f"the same receipt as {first.path}"))
    # Ids of the same millisecond keep their order.
    ordered = sorted(
        entries.values(),
        key=lambda entry: (-1.0 if entry.created_s is None else entry.created_s, entry.receipt_id),
    )
    return Fleet(root, tuple(ordered), tuple(problems), tuple(notes), files_read)
