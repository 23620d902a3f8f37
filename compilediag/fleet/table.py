"""Receipts as one flat table, a row a receipt, a column a measure: Parquet, through DuckDB."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import Any

from compilediag.errors import OutputUnwritable, ReceiptUnreadable, UsageError
from compilediag.fleet.entry import Entry, Lane
from compilediag.fleet.measures import MEASURES
from compilediag.fleet.places import TABLE_SUFFIX
from compilediag.fleet.remote import file_of

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
        OutputUnwritable: it cannot be written, or something that is not ours is there.
        UsageError: DuckDB or fsspec is not installed.
    """
    with TemporaryDirectory(prefix="compilediag-") as folder:
        made = os.path.join(folder, f"receipts{TABLE_SUFFIX}")
        with _filled(entries, folder) as database:
            marked = f"FORMAT parquet, COMPRESSION zstd, KV_METADATA {{'{MARK}': '1'}}"
            database.execute(f"COPY {TABLE} TO '{_quoted(made)}' ({marked})")
        try:
            with file_of(location) as target:
                _check_ours(target.tail(_TAIL_BYTES), location)
                target.put(made)
        except OSError as error:
            raise OutputUnwritable(
                f"{location} cannot be written: {error.strerror or error}"
            ) from error


def read_table(location: str) -> list[Entry]:
    """The receipts in a Parquet file that `write_table` wrote, of this or another version.

    Raises:
        UsageError: there is no such file, or DuckDB or fsspec is not installed.
        ReceiptUnreadable: it is none of ours, or damaged.
    """
    with TemporaryDirectory(prefix="compilediag-") as folder, _database() as database:
        path = os.path.join(folder, f"receipts{TABLE_SUFFIX}")
        try:
            with file_of(location) as source:
                source.get(path)
        except OSError as error:
            raise UsageError(f"{location} cannot be read: {error.strerror or error}") from error
        try:
            database.execute("SELECT * FROM read_parquet(?)", [path])
            names = [str(column[0]) for column in database.description]
            return [_entry(dict(zip(names, row, strict=True))) for row in database.fetchall()]
        except (_errors(), KeyError, TypeError, ValueError) as error:
            first = str(error).partition("\n")[0].replace(path, location)
            raise ReceiptUnreadable(f"{location} is no table of receipts: {first}") from error


def query(entries: Sequence[Entry], sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """What DuckDB answers to a question about the table `receipts`: names of columns, and rows.

    Raises:
        UsageError: the question cannot be answered, or DuckDB is not installed.
    """
    with (
        TemporaryDirectory(prefix="compilediag-") as folder,
        _filled(entries, folder) as database,
    ):
        try:
            # A question changes nothing and reads nothing else.
            database.execute("SET enable_external_access = false")
            database.execute(sql)
            names = [str(column[0]) for column in database.description or ()]
            return names, database.fetchall()
        except _errors() as error:
            raise UsageError(f"DuckDB cannot answer: {error}") from error


@contextlib.contextmanager
def _filled(entries: Iterable[Entry], folder: str) -> Generator[Any, None, None]:
    """A database with the table: by way of a file of lines, the fastest way into DuckDB."""
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


def _errors() -> type[Exception]:
    return require_duckdb().Error


def _row(entry: Entry) -> dict[str, Any]:
    return {
        "path": entry.path,
        "receipt_id": entry.receipt_id,
        "created": entry.created,
        "created_s": entry.created_s,
        "lane": entry.lane.name,
        "preset": entry.lane.preset,
        "precision": entry.lane.precision,
        "lane_flags": dict(entry.lane.flags),
        "machine": entry.machine,
        "software": dict(entry.software),
        "git_commit": entry.commit,
        "git_branch": entry.branch,
        "git_dirty": entry.dirty,
        "git_message": entry.message,
        "status": entry.status,
        "verdict": entry.verdict,
        "steps": entry.steps,
        "failed_checks": entry.failed,
        **entry.values,
    }


def _entry(row: Mapping[str, Any]) -> Entry:
    values = {item.name: row.get(item.name) for item in MEASURES}
    failed = row["failed_checks"]
    flags = tuple(sorted(row["lane_flags"].items()))
    return Entry(
        path=row["path"],
        receipt_id=row["receipt_id"],
        created=row["created"],
        created_s=row["created_s"],
        lane=Lane(row["lane"], row["preset"], row["precision"], flags),
        machine=row["machine"],
        software=tuple(row["software"].items()),
        commit=row["git_commit"],
        branch=row["git_branch"],
        dirty=row["git_dirty"],
        message=row["git_message"],
        status=row["status"],
        verdict=row["verdict"],
        steps=row["steps"],
        failed=None if failed is None else tuple(failed),
        values={name: value for name, value in values.items() if value is not None},
    )


def _check_ours(tail: bytes | None, location: str) -> None:
    if tail and MARK.encode() not in tail:
        raise OutputUnwritable(
            f"{location} is there already and is no table of receipts: it is left as it is"
        )


def _quoted(path: str) -> str:
    return path.replace("'", "''")
