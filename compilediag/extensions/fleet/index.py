"""The index beside the receipts: a SQLite file that can be deleted, and is made again then.

Each row holds what one file was read as, and how the file looked from outside. Writers use SQLite's
transactions, so that several processes may share an index and a killed one leaves the rows before
it. A damaged index is deleted; a file of that name that is not ours is never written to.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import zlib
from collections.abc import Generator, Iterable, Iterator
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from compilediag._version import __version__
from compilediag.extensions.fleet.entry import KINDS, Entry, Lane, Problem
from compilediag.extensions.fleet.measures import MEASURES
from compilediag.receipt.schema.receipt import SCHEMA_VERSION

INDEX_NAME = ".compilediag-index.sqlite"

APPLICATION_ID = 0x43446978
"""The application id of our SQLite files: "CDix"."""

WAIT_S = 5.0
"""How long a process waits for another one that writes."""

_MAGIC = b"SQLite format 3\0"
_ID_OFFSET = 68

_TABLE = """
CREATE TABLE files (
    path TEXT PRIMARY KEY, lane TEXT, created_s REAL, signature BLOB, facts BLOB
) WITHOUT ROWID
"""


class Row(NamedTuple):
    """What one file was read as."""

    path: str
    lane: str | None
    """The name of its lane; None for a file that is no receipt."""
    created_s: float | None
    signature: bytes
    """How the file looked when it was read; empty when it may have changed unseen since."""
    facts: bytes


class NotAnIndex(Exception):
    """The file of the index's name is not ours."""


def user_version() -> int:
    """Of the indexes of this version: a checksum of what a row depends on."""
    kept = (*Row._fields, *Entry._fields, *Lane._fields, *Problem._fields)
    measures = (measure.name for measure in MEASURES)
    parts = (__version__, SCHEMA_VERSION, *kept, *KINDS, *measures)
    return zlib.crc32(",".join(parts).encode()) & 0x7FFFFFFF


def row_of(item: Entry | Problem, signature: bytes) -> Row | None:
    """An entry or a problem as a row; None where the name of its file is no text, which cannot be
    stored: such a file is read every time."""
    try:
        facts = msgspec.msgpack.encode(item)
    except UnicodeEncodeError:
        return None
    if isinstance(item, Entry):
        return Row(item.path, item.lane.name, item.created_s, signature, facts)
    return Row(item.path, None, None, signature, facts)


_decode_entry = msgspec.msgpack.Decoder(Entry).decode
_decode_problem = msgspec.msgpack.Decoder(Problem).decode


def item_of(row: Row, shared: dict[object, object]) -> Entry | Problem:
    """The entry or problem of a row; lanes and machines that are equal are kept once, in `shared`.

    Raises:
        msgspec.MsgspecError: it holds neither.
    """
    if row.lane is None:
        return _decode_problem(row.facts)
    entry = _decode_entry(row.facts)
    return entry._replace(
        lane=shared.setdefault(entry.lane, entry.lane),
        machine=shared.setdefault(entry.machine, entry.machine),
        software=shared.setdefault(entry.software, entry.software),
    )


def read_rows(folder: str) -> Iterator[Row]:
    """Every row of the folder's index; none without an index, or with that of another version.

    Raises:
        NotAnIndex: a file of that name is not ours.
        sqlite3.DatabaseError: the index is damaged, or cannot be read now (`OperationalError`).
    """
    with _opened(folder) as index:
        if index is not None:
            if index.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise sqlite3.DatabaseError("quick_check found damage")
            yield from map(Row._make, index.execute("SELECT * FROM files"))


def newest_rows(folder: str, lane: str, count: int) -> list[Row]:
    """The newest rows of a lane, newest first; none where the index does not have the lane.

    Raises:
        NotAnIndex, sqlite3.DatabaseError: as `read_rows`.
    """
    with _opened(folder) as index:
        query = "SELECT * FROM files WHERE lane = ? ORDER BY created_s DESC LIMIT ?"
        found = () if index is None else index.execute(query, (lane, count))
        return list(map(Row._make, found))


def write_rows(folder: str, rows: Iterable[Row], gone: Iterable[str]) -> None:
    """Adds rows to the folder's index, or replaces those of the same paths, and deletes the rows of
    the paths `gone`. An index of another version is made anew.

    Raises:
        NotAnIndex: a file of that name is not ours.
        sqlite3.Error: the folder or the disk does not take it; the index stays as it was.
    """
    with contextlib.closing(
        sqlite3.connect(_path(folder), timeout=WAIT_S, isolation_level=None)
    ) as index:
        index.execute("BEGIN IMMEDIATE")
        with index:
            empty = index.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
            if not empty and _pragma(index, "application_id") != APPLICATION_ID:
                raise NotAnIndex(_NOT_OURS)
            if empty or _pragma(index, "user_version") != user_version():
                index.execute("DROP TABLE IF EXISTS files")
                index.execute(_TABLE)
                index.execute("CREATE INDEX by_lane ON files (lane, created_s)")
                index.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                index.execute(f"PRAGMA user_version = {user_version()}")
            index.executemany("DELETE FROM files WHERE path = ?", ((path,) for path in gone))
            index.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)", rows)


def delete_index(folder: str) -> None:
    """Deletes a damaged index, so that the next one is made anew."""
    for path in (f"{_path(folder)}-journal", _path(folder)):
        with contextlib.suppress(OSError):
            os.unlink(path)


_NOT_OURS = (
    f"{INDEX_NAME} is no index of compilediag, or damaged, and is left as it is: remove it to have "
    "one made"
)


@contextlib.contextmanager
def _opened(folder: str) -> Generator[sqlite3.Connection | None, None, None]:
    """The index of this version, to be read; None where there is none."""
    path = _path(folder)
    if not _is_ours(path):
        yield None
        return
    # "rw", so that SQLite can roll back what a killed writer left; a read-only file stays readable.
    uri = f"file:{quote(os.path.abspath(path))}?mode=rw"
    with contextlib.closing(sqlite3.connect(uri, timeout=WAIT_S, uri=True)) as index:
        index.text_factory = _text
        yield index if _pragma(index, "user_version") == user_version() else None


def _is_ours(path: str) -> bool:
    """Whether there is an index, of whatever version; an empty or half-made file is none."""
    try:
        with open(path, "rb") as stream:
            head = stream.read(_ID_OFFSET + 4)
    except FileNotFoundError:
        return False
    if head.startswith(_MAGIC) and head[_ID_OFFSET:] == APPLICATION_ID.to_bytes(4, "big"):
        return True
    if head and not os.path.exists(f"{path}-journal"):
        raise NotAnIndex(_NOT_OURS)
    return False


def _text(raw: bytes) -> str:
    """Damaged text is no text of ours, and no error."""
    return raw.decode("utf-8", "replace")


def _pragma(index: sqlite3.Connection, name: str) -> int:
    return int(index.execute(f"PRAGMA {name}").fetchone()[0])


def _path(folder: str) -> str:
    return os.path.join(folder, INDEX_NAME)
