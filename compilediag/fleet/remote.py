"""Receipts and tables at URIs, through fsspec: s3://, gs://, hf:// and whatever else it knows."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Iterable, Iterator
from typing import Any, NamedTuple, cast

from compilediag.fleet.entry import Entry, Problem
from compilediag.fleet.reading import read_content
from compilediag.readers.storage import AT_ONCE, is_uri, system_of, told
from compilediag.receipt.file import LARGEST_BYTES
from compilediag.receipt.locate import RECEIPT_NAME, RUNS_FOLDER

_SUFFIX = ".json"


def read_remote(location: str) -> Iterator[Entry | Problem]:
    """What the JSON files below a URI hold, by the rules of `scan`. Nothing is kept beside them.

    Raises:
        UsageError: the place cannot be listed, or fsspec is not installed.
    """
    system, root = system_of(location)
    with told(location):
        sizes = _sizes(system, root)
    for paths in _batches(candidates(sizes)):
        small = [path for path in paths if sizes[path] <= LARGEST_BYTES]
        for path in sorted(set(paths) - set(small)):
            yield Problem(path, "foreign", f"larger than {LARGEST_BYTES >> 20} MiB")
        names = {path: f"{root}/{path}" for path in small}
        with told(location):
            found = cast(dict[str, Any], system.cat(list(names.values()), on_error="return"))
        for path, name in names.items():
            content = found.get(name)
            if isinstance(content, bytes):
                yield read_content(content, path, path)
            else:
                yield Problem(path, "unreadable", str(content))


def candidates(paths: Iterable[str]) -> list[str]:
    """Of all files below a place those that may be receipts, in order; see `scan.scan`."""
    shown = sorted(path for path in paths if path.endswith(_SUFFIX) and not _is_hidden(path))
    runs = {os.path.dirname(path) for path in shown if os.path.basename(path) == RECEIPT_NAME}
    runs.discard("")
    return [path for path in shown if _counts(path, runs)]


def _counts(path: str, runs: set[str]) -> bool:
    """Whether no folder of a run holds the file as one of its artifacts."""
    above = os.path.dirname(path)
    if above in runs and os.path.basename(path) != RECEIPT_NAME:
        return False
    while above := os.path.dirname(above):
        if above in runs:
            return False
    return True


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") and part != RUNS_FOLDER for part in path.split("/"))


class Target(NamedTuple):
    """One file, on this machine or elsewhere."""

    system: Any
    path: str

    def tail(self, size: int) -> bytes | None:
        """Its last bytes; None where there is no file."""
        if not self.system.exists(self.path):
            return None
        length = int(self.system.size(self.path) or 0)
        return bytes(self.system.cat_file(self.path, start=max(length - size, 0)))

    def put(self, made: str) -> None:
        """Puts a file of this machine in its place, in one go."""
        self.system.put_file(made, self.path)

    def get(self, path: str) -> None:
        """Copies it to this machine."""
        self.system.get_file(self.path, path)


class _Local(NamedTuple):
    """What `Target` needs of fsspec, for files of this machine."""

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.path.getsize(path)

    def cat_file(self, path: str, start: int) -> bytes:
        with open(path, "rb") as stream:
            stream.seek(start)
            return stream.read()

    def get_file(self, path: str, copy: str) -> None:
        import shutil

        shutil.copyfile(path, copy)

    def put_file(self, made: str, path: str) -> None:
        import shutil

        temporary = f"{path}.{os.getpid()}-{os.urandom(4).hex()}.tmp"
        try:
            shutil.copyfile(made, temporary)
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


@contextlib.contextmanager
def file_of(location: str) -> Generator[Target, None, None]:
    """The file at a path or URI.

    Raises:
        UsageError: its file system cannot be used.
    """
    if not is_uri(location):
        yield Target(_Local(), location)
        return
    system, path = system_of(location)
    with told(location):
        yield Target(system, path)


def _sizes(system: Any, root: str) -> dict[str, int]:
    """Every file below the root, with its size in bytes."""
    found = cast(dict[str, dict[str, Any]], system.find(root, detail=True))
    if not found and not system.exists(root):
        raise FileNotFoundError(f"there is nothing at {root}")
    return {
        name[len(root) :].lstrip("/"): int(about.get("size") or 0) for name, about in found.items()
    }


def _batches(paths: list[str]) -> Iterator[list[str]]:
    for place in range(0, len(paths), AT_ONCE):
        yield paths[place : place + AT_ONCE]
