"""Finds the files below a folder or URI that may be receipts, and loads them as entries.

Candidates are JSON files. Of a folder below the root that holds a `receipt.json`, only that counts:
it is the folder of a run, and the rest are its artifacts. Hidden files and folders are left out,
but for `.compilediag`; links to folders, `latest` among them, are not followed.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, cast

from compilediag.errors import ReceiptTooNew, ReceiptUnreadable, UsageError
from compilediag.extensions.fleet.entry import BadFile, Entry, make_entry
from compilediag.readers.lines import parse_unix_s
from compilediag.readers.storage import convert_errors, get_file_system, is_uri, list_files
from compilediag.receipt.contradictions import find_contradictions
from compilediag.receipt.file import LARGEST_BYTES, decode_receipt
from compilediag.receipt.locate import RECEIPT_NAME, RUNS_FOLDER
from compilediag.receipt.schema.receipt import SCHEMA

SUFFIX = ".json"

BATCH_FILES = 200
"""Files requested together."""

_TOO_LARGE = f"larger than {LARGEST_BYTES >> 20} MiB"


Progress = Callable[[int, int], None]
"""Called with how many of how many files have been read."""


class Fleet(NamedTuple):
    """The receipts of a folder."""

    root: str
    """The folder as it was named; paths of entries are relative to it."""
    entries: tuple[Entry, ...]
    """In the order of time; those without a time come first."""
    problems: tuple[BadFile, ...]
    files_read: int


def load_fleet(
    location: str,
    wanted: Callable[[Entry], bool] = lambda entry: True,
    progress: Progress = lambda done, total: None,
) -> Fleet:
    """Load every wanted receipt in and below a folder or a URI, and what the other files are.

    Raises:
        UsageError: there is nothing at the location, or what it needs is not installed.
    """
    if is_uri(location):
        read, unreadable = list(read_uri(location)), list[BadFile]()
    elif not os.path.isdir(location):
        raise UsageError(f"there is no folder {location}: name one that holds receipts")
    else:
        read = list[Entry | BadFile]()
        paths, unreadable = scan(location)
        for done, path in enumerate(paths):
            progress(done, len(paths))
            read.append(read_file(location, path))
    # Each receipt once: copies are problems.
    entries: dict[str, Entry] = {}
    problems: list[BadFile] = []
    for record in sorted((*unreadable, *read), key=lambda record: record.path):
        if isinstance(record, BadFile):
            problems.append(record)
        elif wanted(record):
            first = entries.setdefault(record.receipt_id, record)
            if first is not record:
                problems.append(BadFile(record.path, "copy", f"the same receipt as {first.path}"))
    # Ids of the same millisecond keep their order.
    ordered = sorted(
        entries.values(),
        key=lambda entry: (-1.0 if entry.created_s is None else entry.created_s, entry.receipt_id),
    )
    return Fleet(location, tuple(ordered), tuple(problems), len(read))


def scan(folder: str) -> tuple[list[str], list[BadFile]]:
    """Scan a folder: the path of every candidate below it, in order and with "/" between its parts,
    and what cannot be read."""
    paths: list[str] = []
    problems: list[BadFile] = []

    def note_unreadable(error: OSError) -> None:
        path = os.path.relpath(error.filename, folder)
        problems.append(BadFile(path, "unreadable", error.strerror or str(error)))

    for here, folders, names in os.walk(folder, onerror=note_unreadable):
        below = os.path.relpath(here, folder)
        prefix = "" if below == "." else f"{below}/"
        if prefix and RECEIPT_NAME in names:
            folders.clear()
        folders[:] = [name for name in folders if not _is_hidden(name)]
        paths += [prefix + name for name in names]
    files: list[str] = []
    for path in select_candidates(paths):
        try:
            status = os.stat(os.path.join(folder, path))
        except FileNotFoundError:  # deleted just now, or a link to nothing
            continue
        except OSError as error:
            problems.append(BadFile(path, "unreadable", error.strerror or str(error)))
            continue
        if stat.S_ISREG(status.st_mode):
            files.append(path)
    return files, problems


def select_candidates(paths: Iterable[str]) -> list[str]:
    """Select those of all files below a root that may be receipts, in order."""
    visible = sorted(path for path in paths if path.endswith(SUFFIX) and not _is_hidden(path))
    runs = {os.path.dirname(path) for path in visible if os.path.basename(path) == RECEIPT_NAME}
    runs.discard("")
    selected: list[str] = []
    for path in visible:
        *above, name = path.split("/")
        depths = range(1, len(above) + (name != RECEIPT_NAME))
        # In the folder of a run its receipt alone may be one.
        if runs.isdisjoint("/".join(above[:depth]) for depth in depths):
            selected.append(path)
    return selected


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") and part != RUNS_FOLDER for part in path.split("/"))


def read_uri(location: str) -> Iterator[Entry | BadFile]:
    """Read what every candidate below a URI holds.

    Raises:
        UsageError: it cannot be listed or read, or what fsspec needs for it is not installed.
    """
    sizes = list_files(location)
    system, root = get_file_system(location)
    paths = select_candidates(sizes)
    for path in paths:
        if (sizes[path] or 0) > LARGEST_BYTES:
            yield BadFile(path, "foreign", _TOO_LARGE)
    small = [path for path in paths if (sizes[path] or 0) <= LARGEST_BYTES]
    for start in range(0, len(small), BATCH_FILES):
        names = {f"{root}/{path}": path for path in small[start : start + BATCH_FILES]}
        with convert_errors(location):
            contents = cast(dict[str, Any], system.cat(list(names), on_error="return"))
        for name, path in names.items():
            content = contents.get(name)
            if isinstance(content, bytes):
                yield read_content(content, path, path)
            else:
                yield BadFile(path, "unreadable", str(content))


def read_file(folder: str, path: str) -> Entry | BadFile:
    """Read what the file at `path` below `folder` holds. No content raises."""
    file = os.path.join(folder, path)
    try:
        if os.stat(file).st_size > LARGEST_BYTES:
            return BadFile(path, "foreign", _TOO_LARGE)
        with open(file, "rb") as stream:
            content = stream.read()
    except OSError as error:
        return BadFile(path, "unreadable", error.strerror or str(error))
    return read_content(content, path, file)


def read_content(content: bytes, path: str, name: str) -> Entry | BadFile:
    """Read what the bytes of a file hold, which errors call `name`. No content raises."""
    try:
        receipt = decode_receipt(content, name)
    except ReceiptUnreadable as error:
        # What is not a receipt is foreign, unless something says that it should be one.
        ours = not content.strip() or path.rpartition("/")[2] == RECEIPT_NAME
        kind = "damaged" if ours or SCHEMA.encode() in content else "foreign"
        kind = "newer" if isinstance(error, ReceiptTooNew) else kind
        return BadFile(path, kind, str(error).removeprefix(f"{name} ").rstrip("."))
    if problems := find_contradictions(receipt):
        return BadFile(path, "contradictory", "; ".join(problems))
    created = receipt.header.created_at_utc
    created_s = parse_unix_s(created)  # a time without a zone is taken as UTC
    if created_s is not None:
        created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(created_s))
    return make_entry(receipt, path, created, created_s)
