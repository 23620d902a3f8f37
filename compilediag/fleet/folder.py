"""A folder of receipts as entries: the files are the truth, the index only saves reading them."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from compilediag.errors import UsageError
from compilediag.fleet.entry import Entry, Problem
from compilediag.fleet.index import (
    NotAnIndex,
    Row,
    item_of,
    newest_of,
    row_of,
    rows_of,
    write_index,
)
from compilediag.fleet.reading import read_file
from compilediag.fleet.scan import Found, look_at, scan

LEAST_INDEXED = 50
"""Fewer files are read each time: that takes milliseconds, and leaves nothing in the folder."""

SETTLED_S = 2.0
"""A file that changed less long ago may change again without looking different from outside."""

Progress = Callable[[int, int], None]
"""Told how many of how many files have been read."""

Wanted = Callable[[str, float | None], bool]
"""Whether a lane's name and the time of a receipt are asked for."""


class Fleet(NamedTuple):
    """The receipts of a folder."""

    root: str
    """The folder as it was named; paths of entries lie below it."""
    entries: tuple[Entry, ...]
    """In the order of time; those without a time come first."""
    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()
    """What a user may want to know of how they were read."""
    files_read: int = 0
    """How many files had to be read; the index answered for the others."""


def every(lane: str, created_s: float | None) -> bool:
    """Wants every receipt."""
    return True


def fleet_of(
    folder: str, wanted: Wanted = every, progress: Progress = lambda done, total: None
) -> Fleet:
    """Every receipt below a folder that is wanted, and what the other files are.

    Each file is looked at from outside and read where it changed since it was indexed. The index
    is brought up to date where that can be done; where not, the answer is the same.

    Raises:
        UsageError: there is no such folder.
    """
    if not os.path.isdir(folder):
        raise UsageError(f"there is no folder {folder}: name one that holds receipts")
    found, problems = scan(folder)
    known = _known(folder, found, wanted)
    rows: list[Row] = []
    items: list[Entry | Problem] = [*problems, *known.items]
    now = time.time()
    for number, file in enumerate(known.changed):
        progress(number, len(known.changed))
        item = read_file(folder, file.path)
        if not isinstance(item, Problem) or item.kind != "unreadable":
            settled = now - file.changed_s > SETTLED_S
            row = row_of(item, file.signature if settled else b"")
            rows += [row] if row is not None else []
        if isinstance(item, Problem) or wanted(item.lane.name, item.created_s):
            items.append(item)
    notes = [known.note] if known.note else []
    if known.ours and len(found) >= LEAST_INDEXED and (rows or known.gone):
        notes += _write(folder, found, known, rows)
    return gathered(folder, items, notes, len(known.changed))


def newest(folder: str, lane: str, number: int) -> Fleet | None:
    """The newest receipts of a lane from the index alone, without a look at every file.

    The files of these receipts are looked at. None where the index cannot answer: there is none,
    it is damaged or of another version, or one of these files has changed.
    """
    try:
        rows = newest_of(folder, lane, number)
    except (NotAnIndex, sqlite3.Error, OSError):
        return None
    if any(look_at(folder, row.path) != row.signature for row in rows):
        return None
    note = "as indexed: receipts that came since the index was made are not in it"
    return gathered(folder, [item_of(row) for row in rows], [note], 0)


class _Known(NamedTuple):
    """What the index knows of the files that were found."""

    items: list[Entry | Problem]
    """What it says of files that look as they did, those that are wanted."""
    changed: list[Found]
    """Files it does not know as they look now."""
    gone: list[str]
    """Files it knows and that are gone."""
    usable: bool = True
    """Whether its rows may be taken over."""
    ours: bool = True
    """Whether an index may be written."""
    note: str | None = None


def _known(folder: str, found: Sequence[Found], wanted: Wanted) -> _Known:
    pending = {file.path: file for file in found}
    known = _Known([], [], [])
    try:
        for row in rows_of(folder):
            file = pending.get(row.path)
            if file is None:
                known.gone.append(row.path)
            elif file.signature == row.signature:
                del pending[row.path]
                if row.lane is None or wanted(row.lane, row.created_s):
                    known.items.append(item_of(row))
    except NotAnIndex as error:
        return _Known([], list(found), [], ours=False, note=str(error))
    except (sqlite3.Error, msgspec.MsgspecError):
        said = "the index was damaged: every file was read"
        return _Known([], list(found), [], usable=False, note=said)
    return known._replace(changed=list(pending.values()))


def _write(
    folder: str, found: Sequence[Found], known: _Known, rows: Sequence[Row]
) -> Iterator[str]:
    """Brings the index up to date; that a folder does not take it is told, and no failure."""
    new = {row.path: row for row in rows}
    try:
        if known.usable and len(rows) + len(known.gone) <= len(found) / 4:
            try:
                write_index(folder, rows, known.gone, fresh=False)
                return
            except sqlite3.DatabaseError:  # damaged where no row is: made anew
                pass
        gone = {*known.gone, *new}
        kept = rows_of(folder) if known.usable else iter(())
        merged = chain((row for row in kept if row.path not in gone), rows)
        write_index(folder, merged, (), fresh=True)
    except (OSError, sqlite3.Error, NotAnIndex) as error:
        told = error.strerror or error if isinstance(error, OSError) else error
        yield f"the index cannot be written, so the next call reads again: {told}"


def gathered(
    root: str, items: Iterable[Entry | Problem], notes: Sequence[str] = (), files_read: int = 0
) -> Fleet:
    """Entries in the order of time, each receipt once; copies are told among the problems."""
    entries: dict[str, Entry] = {}
    problems: list[Problem] = []
    for item in sorted(items, key=lambda item: item.path):
        if isinstance(item, Problem):
            problems.append(item)
        elif (first := entries.setdefault(item.receipt_id, item)) is not item:
            problems.append(Problem(item.path, "copy", f"the same receipt as {first.path}"))
    ordered = sorted(entries.values(), key=in_time)
    return Fleet(root, tuple(ordered), tuple(problems), tuple(notes), files_read)


def in_time(entry: Entry) -> tuple[float, str]:
    """Sorts entries by their time; ids of the same millisecond keep their order."""
    return (-1.0 if entry.created_s is None else entry.created_s, entry.receipt_id)
