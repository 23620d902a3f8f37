"""Receipts as one flat table, a row per receipt, a column per measure: Parquet, through DuckDB."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import Any

from compilediag.errors import CompilediagError, OutputUnwritable, ReceiptUnreadable, UsageError
from compilediag.extensions.fleet.entry import TABLE_SUFFIX, Entry, Lane
from compilediag.extensions.fleet.measures import MEASURES
from compilediag.readers.storage import error_text, file_system, is_uri
from compilediag_harness.base import atomic_write

MARK = "compilediag.receipts"
"""Key in the metadata of our files: others are never written over."""

TABLE = "receipts"

_TEXTS = ("path", "receipt_id", "created", "lane", "preset", "precision", "machine")
_CODE = ("git_commit", "git_branch", "git_message")
_COLUMNS: Mapping[str, str] = {
    **dict.fromkeys(_TEXTS, "VARCHAR"),
    "created_s": "DOUBLE",
    "lane_flags": "MAP(VARCHAR, VARCHAR)",
    "software": "MAP(VARCHAR, VARCHAR)",
    **dict.fromkeys(_CODE, "VARCHAR"),
    "git_dirty": "BOOLEAN",
    "status": "VARCHAR",
    "verdict": "VARCHAR",
    "steps": "BIGINT",
    "failed_checks": "VARCHAR[]",
    **{item.name: "DOUBLE" for item in MEASURES},
}
"""Columns and their types. A column keeps its meaning, as a field of the receipt does."""

_TAIL_BYTES = 1 << 16


def write_table(entries: Sequence[Entry], location: str) -> None:
    """Writes the receipts to a Parquet file, a path or a URI of fsspec, whole or not at all.

    Raises:
        OutputUnwritable: it cannot be written, or a file that is not ours is there.
        UsageError: DuckDB, or what fsspec needs for the URI, is not installed.
    """
    with TemporaryDirectory(prefix="compilediag-") as folder:
        table = os.path.join(folder, f"receipts{TABLE_SUFFIX}")
        with _filled(entries, folder) as database:
            options = f"FORMAT parquet, COMPRESSION zstd, KV_METADATA {{'{MARK}': '1'}}"
            target = table.replace("'", "''")
            database.execute(f"COPY {TABLE} TO '{target}' ({options})")
        try:
            _put(table, location)
        except CompilediagError:
            raise
        except Exception as error:  # fsspec's implementations raise what they like
            raise OutputUnwritable(f"{location} cannot be written: {error_text(error)}") from error


def _put(table: str, location: str) -> None:
    """Puts a file of this machine in the place of another one, if that is ours."""
    system, path = file_system(location)
    if system.exists(path):
        tail = system.cat_file(path, start=max(int(system.size(path) or 0) - _TAIL_BYTES, 0))
        if tail and MARK.encode() not in tail:
            raise OutputUnwritable(
                f"{location} is there already and is no table of receipts: it is left as it is"
            )
    if is_uri(location):
        system.put_file(table, path)
        return
    with open(table, "rb") as content:
        atomic_write.write(location, iter(lambda: content.read(1 << 20), b""))


def read_table(location: str) -> list[Entry]:
    """The receipts in a Parquet file that `write_table` wrote, of this or another version.

    Raises:
        UsageError: there is no such file, or DuckDB, or what fsspec needs for the URI, is not
            installed.
        ReceiptUnreadable: it is not ours, or damaged.
    """
    with TemporaryDirectory(prefix="compilediag-") as folder, _database() as database:
        table = os.path.join(folder, f"receipts{TABLE_SUFFIX}")
        system, path = file_system(location)
        try:
            system.get_file(path, table)
        except Exception as error:  # fsspec's implementations raise what they like
            raise UsageError(f"{location} cannot be read: {error_text(error)}") from error
        try:
            database.execute("SELECT * FROM read_parquet(?)", [table])
            names = [str(column[0]) for column in database.description]
            return [_entry(dict(zip(names, row, strict=True))) for row in database.fetchall()]
        except (require_duckdb().Error, KeyError, TypeError, ValueError) as error:
            first = str(error).partition("\n")[0].replace(table, location)
            raise ReceiptUnreadable(f"{location} is no table of receipts: {first}") from error


def query(entries: Sequence[Entry], sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """What DuckDB answers to a query of the table `receipts`: names of columns, and rows.

    Raises:
        UsageError: the query has no answer, or DuckDB is not installed.
    """
    with (
        TemporaryDirectory(prefix="compilediag-") as folder,
        _filled(entries, folder) as database,
    ):
        try:
            # A query changes nothing and reads nothing else.
            database.execute("SET enable_external_access = false")
            database.execute(sql)
            names = [str(column[0]) for column in database.description or ()]
            return names, database.fetchall()
        except require_duckdb().Error as error:
            raise UsageError(f"DuckDB cannot answer: {error}") from error


@contextlib.contextmanager
def _filled(entries: Iterable[Entry], folder: str) -> Generator[Any, None, None]:
    """A database with the table: through a file of lines, the fastest way into DuckDB."""
    path = os.path.join(folder, "receipts.ndjson")
    with open(path, "w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(_row(entry), allow_nan=False) + "\n" for entry in entries)
    types = ", ".join(f"'{name}': '{kind}'" for name, kind in _COLUMNS.items())
    with _database() as database:
        lines_of = f"read_json(?, format = 'newline_delimited', columns = {{{types}}})"
        database.execute(f"CREATE TABLE {TABLE} AS FROM {lines_of}", [path])
        yield database


def require_duckdb() -> Any:
    """The module.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return import_module("duckdb")
    except ImportError as error:
        raise UsageError(
            "tables of receipts need DuckDB, and it is not installed: "
            "pip install 'compilediag[store]'"
        ) from error


@contextlib.contextmanager
def _database() -> Generator[Any, None, None]:
    duckdb = require_duckdb()
    # Nothing is fetched from anywhere: what is needed is in the package.
    with contextlib.closing(
        duckdb.connect(":memory:", config={"autoinstall_known_extensions": "false"})
    ) as database:
        yield database


_RENAMED = {
    "commit": "git_commit",
    "branch": "git_branch",
    "dirty": "git_dirty",
    "message": "git_message",
    "failed": "failed_checks",
}
"""Fields of an entry whose columns have another name."""

_SAME = frozenset(Entry._fields) & _COLUMNS.keys() - {"lane", "software"}


def _row(entry: Entry) -> dict[str, Any]:
    return {
        **{name: getattr(entry, name) for name in _SAME},
        **{column: getattr(entry, name) for name, column in _RENAMED.items()},
        "lane": entry.lane.name,
        "preset": entry.lane.preset,
        "precision": entry.lane.precision,
        "lane_flags": dict(entry.lane.flags),
        "software": dict(entry.software),
        **entry.values,
    }


def _entry(row: Mapping[str, Any]) -> Entry:
    values = {item.name: row.get(item.name) for item in MEASURES}
    fields = {name: row[name] for name in _SAME}
    fields |= {name: row[column] for name, column in _RENAMED.items()}
    flags = tuple(sorted(row["lane_flags"].items()))
    fields |= {
        "lane": Lane(row["lane"], row["preset"], row["precision"], flags),
        "software": tuple(row["software"].items()),
        "failed": None if fields["failed"] is None else tuple(fields["failed"]),
        "values": {name: value for name, value in values.items() if value is not None},
    }
    return Entry(**fields)
