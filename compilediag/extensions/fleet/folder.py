"""Loads the receipts of a folder or URI as entries, by an index of what was read before.

The files are the truth. The index is a SQLite file beside them that can be deleted, and is made
again then; it only saves reading. Each row
holds what one file was read as, and how the file looked from outside. Writers use SQLite's
transactions, so that several processes may share an index and a killed one leaves the rows before
it. A damaged index is deleted; a file of that name that is not ours is never written to.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from compilediag._version import __version__
from compilediag.errors import UsageError
from compilediag.extensions.fleet.entry import KINDS, BadFile, ConfigurationKey, Entry
from compilediag.extensions.fleet.measures import MEASURES
from compilediag.extensions.fleet.scan import Candidate, read_file, read_signature, read_uri, scan
from compilediag.readers.storage import is_uri
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
    """One file as it was read."""

    path: str
    configuration: str | None
    """The name of its configuration; None for a file that is no receipt."""
    created_s: float | None
    signature: bytes
    """How the file looked when it was read; empty when it may have changed unseen since."""
    facts: bytes


class NotAnIndex(Exception):
    """The file of the index's name is not ours."""


MIN_INDEXED = 50
"""Fewer files are read each time: that takes milliseconds, and leaves nothing in the folder."""

SETTLED_S = 2.0
"""A file that changed less long ago may change again without looking different from outside."""

Progress = Callable[[int, int], None]
"""Called with how many of how many files have been read."""

Wanted = Callable[[str, float | None], bool]
"""Whether a receipt is wanted, by its configuration's name and its time."""


class Fleet(NamedTuple):
    """The receipts of a folder."""

    root: str
    """The folder as it was named; paths of entries are relative to it."""
    entries: tuple[Entry, ...]
    """In the order of time; those without a time come first."""
    problems: tuple[BadFile, ...]
    notes: tuple[str, ...] = ()
    """What a user may want to know of how they were read."""
    files_read: int = 0
    """How many files had to be read; the index had the others."""


def accept_all(configuration: str, created_s: float | None) -> bool:
    """Accept every receipt."""
    return True


def load_fleet(
    location: str, wanted: Wanted = accept_all, progress: Progress = lambda done, total: None
) -> Fleet:
    """Load every wanted receipt in and below a folder or a URI, and what the other files are.

    Each file of a folder is looked at from outside, and read where it changed since it was indexed.
    The index is brought up to date where that is possible; where not, the result is the same.

    Raises:
        UsageError: there is nothing at the location, or what it needs is not installed.
    """
    if is_uri(location):
        records = list(read_uri(location))
        return build_fleet(location, _filter_wanted(records, wanted), files_read=len(records))
    if not os.path.isdir(location):
        raise UsageError(f"there is no folder {location}: name one that holds receipts")
    files, problems = scan(location)
    known = _read_index(location, files, wanted)
    notes = [known.note] if known.note else []
    rows: list[Row] = []
    read: list[Entry | BadFile] = []
    now = time.time()
    for done, file in enumerate(known.changed):
        progress(done, len(known.changed))
        record = read_file(location, file.path)
        read.append(record)
        settled = now - file.changed_s > SETTLED_S
        row = encode_row(record, file.signature if settled else b"")
        if row is not None and not (isinstance(record, BadFile) and record.kind == "unreadable"):
            rows.append(row)
    if known.writable and len(files) >= MIN_INDEXED and (rows or known.gone):
        try:
            write_rows(location, rows, known.gone)
        except (sqlite3.Error, NotAnIndex) as error:
            notes.append(f"the index cannot be written, so the next call reads again: {error}")
    records = [*problems, *known.records, *_filter_wanted(read, wanted)]
    return build_fleet(location, records, notes, len(known.changed))


def load_newest(folder: str, configuration: str, count: int) -> Fleet | None:
    """Load the newest receipts of a configuration from the index alone.

    Only the files of these receipts are looked at. None where the index does not tell: there is
    none, it is damaged or of another version, it does not know the configuration, or one of these
    files has changed.
    """
    try:
        rows = read_newest_rows(folder, configuration, count)
        records = [decode_row(row, {}) for row in rows]
    except (NotAnIndex, sqlite3.Error, msgspec.MsgspecError, TypeError, ValueError, OSError):
        return None
    if not rows or any(read_signature(folder, row.path) != row.signature for row in rows):
        return None
    note = "as indexed: receipts that came since the index was made are not in it"
    return build_fleet(folder, records, [note])


class _Indexed(NamedTuple):
    """The content of the index for the files that are there."""

    records: list[Entry | BadFile]
    """Of files that look as they did, those that are wanted."""
    changed: list[Candidate]
    """Files that are not in it as they look now."""
    gone: list[str]
    """Files in it that do not exist any more."""
    note: str | None = None
    writable: bool = True
    """Whether an index of ours may be written."""


def _read_index(folder: str, files: Sequence[Candidate], wanted: Wanted) -> _Indexed:
    pending = {file.path: file for file in files}
    known = _Indexed([], [], [])
    shared: dict[object, object] = {}
    try:
        for row in read_rows(folder):
            file = pending.get(row.path)
            if file is None:
                known.gone.append(row.path)
            elif file.signature == row.signature:
                del pending[row.path]
                if row.configuration is None or wanted(row.configuration, row.created_s):
                    known.records.append(decode_row(row, shared))
    except NotAnIndex as error:
        return _Indexed([], list(files), [], str(error), writable=False)
    except (sqlite3.OperationalError, OSError) as error:
        note = f"{INDEX_NAME} cannot be read: {error}"
        return _Indexed([], list(files), [], note, writable=False)
    except (sqlite3.DatabaseError, msgspec.MsgspecError, TypeError, ValueError):
        delete_index(folder)
        return _Indexed([], list(files), [], note="the index was damaged: every file was read")
    return known._replace(changed=list(pending.values()))


def _filter_wanted(records: Iterable[Entry | BadFile], wanted: Wanted) -> list[Entry | BadFile]:
    return [
        record
        for record in records
        if isinstance(record, BadFile) or wanted(record.configuration.name, record.created_s)
    ]


def build_fleet(
    root: str, records: Iterable[Entry | BadFile], notes: Sequence[str] = (), files_read: int = 0
) -> Fleet:
    """Build the fleet: entries in the order of time, each receipt once; copies are problems."""
    entries: dict[str, Entry] = {}
    problems: list[BadFile] = []
    for record in sorted(records, key=lambda record: record.path):
        if isinstance(record, BadFile):
            problems.append(record)
        elif (first := entries.setdefault(record.receipt_id, record)) is not record:
            problems.append(BadFile(record.path, "copy", f"the same receipt as {first.path}"))
    # Ids of the same millisecond keep their order.
    ordered = sorted(
        entries.values(),
        key=lambda entry: (-1.0 if entry.created_s is None else entry.created_s, entry.receipt_id),
    )
    return Fleet(root, tuple(ordered), tuple(problems), tuple(notes), files_read)


def compute_user_version() -> int:
    """Compute the version of our indexes: a checksum of what a row depends on."""
    field_names = (*Row._fields, *Entry._fields, *ConfigurationKey._fields, *BadFile._fields)
    measures = (measure.name for measure in MEASURES)
    parts = (__version__, SCHEMA_VERSION, *field_names, *KINDS, *measures)
    return zlib.crc32(",".join(parts).encode()) & 0x7FFFFFFF


def encode_row(record: Entry | BadFile, signature: bytes) -> Row | None:
    """Encode an entry or a problem as a row; None where the name of its file is no text, which
    cannot be stored: such a file is read every time."""
    try:
        facts = msgspec.msgpack.encode(record)
    except UnicodeEncodeError:
        return None
    if isinstance(record, Entry):
        return Row(record.path, record.configuration.name, record.created_s, signature, facts)
    return Row(record.path, None, None, signature, facts)


_decode_entry = msgspec.msgpack.Decoder(Entry).decode
_decode_problem = msgspec.msgpack.Decoder(BadFile).decode


def decode_row(row: Row, shared: dict[object, object]) -> Entry | BadFile:
    """Decode the entry or problem of a row; equal configurations and machines are shared objects,
    by `shared`.

    Raises:
        msgspec.MsgspecError: it holds neither.
    """
    if row.configuration is None:
        return _decode_problem(row.facts)
    entry = _decode_entry(row.facts)
    return entry._replace(
        configuration=shared.setdefault(entry.configuration, entry.configuration),
        machine=shared.setdefault(entry.machine, entry.machine),
        software=shared.setdefault(entry.software, entry.software),
    )


def read_rows(folder: str) -> Iterator[Row]:
    """Read every row of the folder's index; none without one, or with that of another version.

    Raises:
        NotAnIndex: a file of that name is not ours.
        sqlite3.DatabaseError: the index is damaged, or cannot be read now (`OperationalError`).
    """
    with _open_index(folder) as index:
        if index is not None:
            if index.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise sqlite3.DatabaseError("quick_check found damage")
            yield from map(Row._make, index.execute("SELECT * FROM files"))


def read_newest_rows(folder: str, configuration: str, count: int) -> list[Row]:
    """Read the newest rows of a configuration, newest first; none where the index has none of it.

    Raises:
        NotAnIndex, sqlite3.DatabaseError: as `read_rows`.
    """
    with _open_index(folder) as index:
        query = "SELECT * FROM files WHERE lane = ? ORDER BY created_s DESC LIMIT ?"
        rows = () if index is None else index.execute(query, (configuration, count))
        return list(map(Row._make, rows))


def write_rows(folder: str, rows: Iterable[Row], gone: Iterable[str]) -> None:
    """Add rows to the folder's index, or replace those of the same paths, and delete the rows of
    the paths `gone`. An index of another version is made anew.

    Raises:
        NotAnIndex: a file of that name is not ours.
        sqlite3.Error: the folder or the disk does not take it; the index stays as it was.
    """
    with contextlib.closing(
        sqlite3.connect(_get_index_path(folder), timeout=WAIT_S, isolation_level=None)
    ) as index:
        # Invariant: `IMMEDIATE` takes the write lock before the checks below, which another process
        # could else make stale.
        index.execute("BEGIN IMMEDIATE")
        with index:
            empty = index.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
            if not empty and _read_pragma(index, "application_id") != APPLICATION_ID:
                raise NotAnIndex(_NOT_OURS)
            if empty or _read_pragma(index, "user_version") != compute_user_version():
                index.execute("DROP TABLE IF EXISTS files")
                index.execute(_TABLE)
                index.execute("CREATE INDEX by_lane ON files (lane, created_s)")
                index.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                index.execute(f"PRAGMA user_version = {compute_user_version()}")
            index.executemany("DELETE FROM files WHERE path = ?", ((path,) for path in gone))
            index.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)", rows)


def delete_index(folder: str) -> None:
    """Delete a damaged index, so that the next one is made anew."""
    for path in (f"{_get_index_path(folder)}-journal", _get_index_path(folder)):
        with contextlib.suppress(OSError):
            os.unlink(path)


_NOT_OURS = (
    f"{INDEX_NAME} is no index of compilediag, or damaged, and is left as it is: remove it to have "
    "one made"
)


@contextlib.contextmanager
def _open_index(folder: str) -> Generator[sqlite3.Connection | None, None, None]:
    """Open the index of this version for reading; None where there is none."""
    path = _get_index_path(folder)
    if not _is_ours(path):
        yield None
        return
    # "rw", so that SQLite can roll back what a killed writer left; a read-only file stays readable.
    uri = f"file:{quote(os.path.abspath(path))}?mode=rw"
    with contextlib.closing(sqlite3.connect(uri, timeout=WAIT_S, uri=True)) as index:
        # Damaged text is no text of ours, and no error.
        index.text_factory = partial(str, encoding="utf-8", errors="replace")
        yield index if _read_pragma(index, "user_version") == compute_user_version() else None


def _is_ours(path: str) -> bool:
    """True if there is an index, of whatever version; an empty or half-made file is none.

    Raises:
        NotAnIndex: a file of that name is not ours.
    """
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


def _read_pragma(index: sqlite3.Connection, name: str) -> int:
    return int(index.execute(f"PRAGMA {name}").fetchone()[0])


def _get_index_path(folder: str) -> str:
    return os.path.join(folder, INDEX_NAME)
