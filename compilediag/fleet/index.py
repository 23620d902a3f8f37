"""The index beside the receipts: a SQLite file that can be thrown away, and is made again then.

Invariant: an index never changes. A new one is made beside it and takes its place by a rename, so
that readers need no locks, two writers do no harm, and a killed one leaves the old index.

Every row holds what one file said, how the file looked from outside, and a checksum of both: an
index with a damaged row is a damaged one. What is not an index of ours is never written over.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import time
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from compilediag._version import __version__
from compilediag.fleet.entry import Entry, Lane, Problem
from compilediag.fleet.measures import MEASURES
from compilediag.receipt.schema.receipt import SCHEMA_VERSION

INDEX_NAME = ".compilediag-index.sqlite"

APPLICATION = 0x43446978
"""The application id of our SQLite files: "CDix"."""

STALE_S = 3600.0
"""A temporary file this old was left by a writer that was killed."""

_FORMAT = 1
"""Of the tables; raised when they or what `fleet.entry` takes from a receipt change."""

_MAGIC = b"SQLite format 3\x00"
_APPLICATION_AT = 68
_TEMPORARY = ".compilediag-index-"
_TABLES = """
CREATE TABLE about (written_by TEXT);
CREATE TABLE files (
    path TEXT PRIMARY KEY, lane TEXT, created_s REAL, signature BLOB, facts BLOB, checksum INTEGER
);
CREATE INDEX by_lane ON files (lane, created_s);
CREATE TABLE lanes (lane TEXT PRIMARY KEY, number INTEGER, times REAL, checksum INTEGER);
"""
_LANES = "SELECT lane, count(*), total(created_s) FROM files"
_COLUMNS = "path, lane, created_s, signature, facts, checksum"


class Row(NamedTuple):
    """What one file said."""

    path: str
    lane: str | None
    """The name of its lane; None for a file that is no receipt."""
    created_s: float | None
    signature: bytes
    """How the file looked when it was read; empty when it may have changed unseen since."""
    facts: bytes


class NotAnIndex(Exception):
    """A file of the index's name is none of ours, or is damaged beyond recognition."""


def written_by() -> str:
    """What must be the same for an index to be of use: the reader's version and what it keeps."""
    kept = ",".join((*Entry._fields, *Lane._fields, *Problem._fields, *(m.name for m in MEASURES)))
    return f"{_FORMAT} {__version__} {SCHEMA_VERSION} {zlib.crc32(kept.encode()):08x}"


def row_of(item: Entry | Problem, signature: bytes) -> Row | None:
    """An entry or a problem as a row; None where the name of its file is no text, which cannot be
    stored: it is read every time."""
    try:
        facts = msgspec.msgpack.encode(item)
    except UnicodeEncodeError:
        return None
    if isinstance(item, Entry):
        return Row(item.path, item.lane.name, item.created_s, signature, facts)
    return Row(item.path, None, None, signature, facts)


_entry_of = msgspec.msgpack.Decoder(Entry)
_problem_of = msgspec.msgpack.Decoder(Problem)
_same: dict[object, object] = {}
"""Lanes, machines and versions that many entries have, each once."""


def item_of(row: Row) -> Entry | Problem:
    """The entry or problem of a row.

    Raises:
        msgspec.MsgspecError: it holds neither.
    """
    if row.lane is None:
        return _problem_of.decode(row.facts)
    entry = _entry_of.decode(row.facts)
    lane, machine, software = entry.lane, entry.machine, entry.software
    return entry._replace(
        lane=_same.setdefault(lane, lane),
        machine=_same.setdefault(machine, machine),
        software=_same.setdefault(software, software),
    )


def rows_of(folder: str) -> Iterator[Row]:
    """Every row of the folder's index; none without an index, or with that of another version.

    Raises:
        NotAnIndex: a file of that name is not ours.
        sqlite3.Error: the index is damaged.
    """
    with _opened(folder) as opened:
        if opened is not None:
            for row in opened.execute(f"SELECT {_COLUMNS} FROM files"):  # noqa: S608
                yield _sound(row)


def newest_of(folder: str, lane: str, number: int) -> list[Row]:
    """The newest rows of a lane, newest first, as the index has them.

    Raises:
        NotAnIndex, sqlite3.Error: as `rows_of`; also where there is no index of this version, or
            it knows no such lane.
    """
    with _opened(folder) as opened:
        if opened is None:
            raise NotAnIndex("there is no index of this version")
        _check_lane(opened, lane)
        asked = f"SELECT {_COLUMNS} FROM files WHERE lane = ? ORDER BY created_s DESC LIMIT ?"  # noqa: S608
        rows = [_sound(row) for row in opened.execute(asked, (lane, number))]
        times = [-1.0 if row.created_s is None else row.created_s for row in rows]
        if any(row.lane != lane for row in rows) or times != sorted(times, reverse=True):
            raise sqlite3.DatabaseError("its order is damaged")
        return rows


def _check_lane(opened: sqlite3.Connection, lane: str) -> None:
    """Whether the index by lane and time, of which no checksum is taken, still holds what it did:
    so many rows, whose times have the same sum."""
    told = opened.execute("SELECT * FROM lanes WHERE lane = ?", (lane,)).fetchone()
    found = opened.execute(f"{_LANES} WHERE lane = ?", (lane,)).fetchone()
    if told is None or (*found, _lane_checksum(found)) != told:
        raise sqlite3.DatabaseError("it knows no such lane, or is damaged")


def _lane_checksum(told: tuple[Any, ...]) -> int:
    return zlib.crc32(repr(told).encode("utf-8", "replace"))


def write_index(folder: str, rows: Iterable[Row], gone: Sequence[str], *, fresh: bool) -> None:
    """Puts an index with these rows in place of the folder's.

    Args:
        folder: where the receipts are.
        rows: rows that are new or have changed; with `fresh`, all rows.
        gone: paths whose rows are to be left out.
        fresh: whether the index is made from nothing, not from the present one.

    Raises:
        NotAnIndex: a file of that name is not ours; it is left as it is.
        OSError, sqlite3.Error: the folder or the disk does not take it; the old index stays.
    """
    path = os.path.join(folder, INDEX_NAME)
    _check_ours(path)
    _sweep(folder)
    temporary = os.path.join(folder, f"{_TEMPORARY}{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        with open(temporary, "xb") as target:
            if not fresh:
                with open(path, "rb") as source:
                    shutil.copyfileobj(source, target, 1 << 20)
        _fill(temporary, rows, gone, fresh=fresh)
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        _check_ours(path)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _fill(path: str, rows: Iterable[Row], gone: Sequence[str], *, fresh: bool) -> None:
    with contextlib.closing(sqlite3.connect(path)) as opened:
        # Nobody else has this file, and it is flushed as a whole: no journal beside it.
        opened.execute("PRAGMA journal_mode = OFF")
        opened.execute("PRAGMA synchronous = OFF")
        if fresh:
            opened.execute(f"PRAGMA application_id = {APPLICATION}")
            opened.executescript(_TABLES)
            opened.execute("INSERT INTO about VALUES (?)", (written_by(),))
        opened.executemany("DELETE FROM files WHERE path = ?", [(path,) for path in gone])
        marks = ", ".join("?" * (len(Row._fields) + 1))
        stored = ((*row, _checksum(row)) for row in rows)
        opened.executemany(f"INSERT OR REPLACE INTO files VALUES ({marks})", stored)  # noqa: S608
        opened.execute("DELETE FROM lanes")
        lanes = opened.execute(f"{_LANES} WHERE lane IS NOT NULL GROUP BY lane").fetchall()
        told = [(*lane, _lane_checksum(lane)) for lane in lanes]
        opened.executemany("INSERT INTO lanes VALUES (?, ?, ?, ?)", told)
        opened.commit()


@contextlib.contextmanager
def _opened(folder: str) -> Generator[sqlite3.Connection | None, None, None]:
    """The index of this version, to be read; None where there is none."""
    path = os.path.join(folder, INDEX_NAME)
    if not _check_ours(path):
        yield None
        return
    # "immutable": no locks and no files beside it, so that a read-only folder is one to be read.
    uri = f"file:{quote(os.path.abspath(path))}?mode=ro&immutable=1"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as opened:
            row = opened.execute("SELECT written_by FROM about").fetchone()
            yield opened if row is not None and row[0] == written_by() else None
    except UnicodeDecodeError as error:  # even messages of SQLite quote what is damaged
        raise sqlite3.DatabaseError("its text is damaged") from error


def _check_ours(path: str) -> bool:
    """Whether there is an index, of whatever version; an empty file is none.

    Raises:
        NotAnIndex: a file of that name is not ours, or cannot be read.
    """
    try:
        with open(path, "rb") as stream:
            head = stream.read(_APPLICATION_AT + 4)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise NotAnIndex(f"{INDEX_NAME} cannot be read: {error.strerror or error}") from error
    if not head:
        return False
    if head.startswith(_MAGIC) and head[_APPLICATION_AT:] == APPLICATION.to_bytes(4, "big"):
        return True
    raise NotAnIndex(
        f"{INDEX_NAME} is no index of compilediag, or damaged, and is left as it is: remove it to "
        "have one made"
    )


def _sound(stored: tuple[Any, ...]) -> Row:
    """The row that was stored.

    Raises:
        sqlite3.DatabaseError: it is damaged.
    """
    row = Row(*stored[:-1])
    with contextlib.suppress(TypeError, ValueError):
        if _checksum(row) == stored[-1]:
            return row
    raise sqlite3.DatabaseError("a row is damaged")


def _checksum(row: Row) -> int:
    told = f"{row.path}\n{row.lane}\n{row.created_s!r}\n".encode()
    return zlib.crc32(row.facts, zlib.crc32(row.signature, zlib.crc32(told)))


def _sweep(folder: str) -> None:
    """Removes what killed writers left an hour ago."""
    with os.scandir(folder) as entries:
        found = [item for item in entries if item.name.startswith(_TEMPORARY)]
    for item in found:
        with contextlib.suppress(OSError):
            if item.name.endswith(".tmp") and time.time() - item.stat().st_mtime > STALE_S:
                os.unlink(item.path)
