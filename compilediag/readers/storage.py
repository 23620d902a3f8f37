"""Files at URIs, through fsspec: s3://, gs://, hf:// and whatever else it knows.

A name that is found somewhere is only ever put behind the URI that the user gave. fsspec reads
"::" as the beginning of another place, so a name that holds it is never opened.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Iterable, Iterator
from importlib import import_module
from io import BufferedReader
from itertools import groupby, islice
from typing import Any, BinaryIO, NamedTuple, cast

from compilediag.errors import CompilediagError, UsageError

CHAIN = "::"
"""What joins several places to one URI: "simplecache::s3://bucket/runs"."""

AT_ONCE = 200
"""Files that are asked for together."""

_LOCAL = ("file://", "local://")
_LINE_BUFFER = 1 << 16


def is_uri(location: str) -> bool:
    """Whether fsspec is to open it: it names a protocol."""
    return "://" in location


def local_path(location: str) -> str | None:
    """The path behind a "file://" URI, which needs no fsspec; None for other URIs."""
    prefix = next((each for each in _LOCAL if location.startswith(each)), None)
    if prefix is None or CHAIN in location:
        return None
    return os.path.abspath(location.removeprefix(prefix))


def system_of(location: str) -> tuple[Any, str]:
    """The file system of a URI, and the path in it.

    Raises:
        UsageError: fsspec, or what it needs for this protocol, is not installed.
    """
    try:
        fsspec = import_module("fsspec.core")
    except ImportError as error:
        raise UsageError(
            f"{location} needs fsspec, and it is not installed: pip install 'compilediag[store]'"
        ) from error
    with told(location):
        system, path = fsspec.url_to_fs(location)
        return system, str(path).rstrip("/")


@contextlib.contextmanager
def told(location: str) -> Generator[None, None, None]:
    """Whatever a file system of others raises, as one sentence."""
    try:
        yield
    except CompilediagError:
        raise
    except Exception as error:
        raise UsageError(f"{location} cannot be used: {sentence(error)}") from error


def sentence(error: Exception) -> str:
    """What an error of a file system says."""
    return " ".join(str(error).split())[:300] or type(error).__name__


class Listed(NamedTuple):
    """A file below a URI."""

    below: str
    """Its path from there, with "/" between its parts; empty where the URI names the file."""
    empty: bool
    """It is known to hold nothing: not every file system lists sizes."""
    openable: bool
    """No part of the name is a place of its own."""


def files_below(location: str) -> Iterator[Listed]:
    """Every file at and below a URI, a folder's own files before those of its folders.

    Raises:
        UsageError: the place cannot be listed, or nothing is there.
    """
    system, root = system_of(location)
    with told(location):
        found = cast(dict[str, dict[str, Any]], system.find(root, detail=True))
        if not found and not system.exists(root):
            raise FileNotFoundError(f"there is nothing at {root}")
    names = {
        name[len(root) :].lstrip("/"): about
        for name, about in found.items()
        if name.startswith(root) and about.get("type", "file") == "file"
    }
    for name in sorted(names, key=_folder_first):
        parts = name.split("/")
        openable = CHAIN not in name and ".." not in parts
        yield Listed(name, names[name].get("size") == 0, openable)


def _folder_first(name: str) -> list[tuple[bool, str]]:
    *folders, file = name.split("/")
    return [*((True, each) for each in folders), (False, file)]


def below(location: str, name: str) -> str:
    """The place of a file below another place, on this machine or elsewhere."""
    if not is_uri(location):
        return os.path.join(location, name)
    parts = location.split(CHAIN)
    # Links of a chain without a place of their own take that of the next one.
    at = next(place for place, part in enumerate(parts) if "://" in part)
    parts[at] = f"{parts[at].rstrip('/')}/{name}" if name else parts[at]
    return CHAIN.join(parts)


def above(location: str) -> str:
    """The folder that a file lies in."""
    if not is_uri(location):
        return os.path.dirname(location)
    parts = location.split(CHAIN)
    at = next(place for place, part in enumerate(parts) if "://" in part)
    protocol, _, path = parts[at].partition("://")
    parts[at] = f"{protocol}://{path.rpartition('/')[0]}"
    return CHAIN.join(parts)


def names_in(folder: str) -> list[str]:
    """Names of the files in a folder; empty when it cannot be listed."""
    if not is_uri(folder):
        try:
            return os.listdir(folder)
        except OSError:
            return []
    system, root = system_of(folder)
    try:
        listed = cast(list[dict[str, Any]], system.ls(root, detail=True))
    except Exception:  # whatever a file system of others raises
        return []
    names = [str(item["name"]).rpartition("/")[2] for item in listed if item["type"] == "file"]
    return [name for name in names if CHAIN not in name]


def open_uri(location: str, block_bytes: int | None = None) -> BinaryIO:
    """The file at a URI, opened for reading.

    Raises:
        UsageError: fsspec is not installed.
        OSError: the file cannot be opened; its text says why.
    """
    system, path = system_of(location)
    try:
        return cast(BinaryIO, system.open(path, "rb", block_size=block_bytes))
    except Exception as error:
        raise OSError(sentence(error)) from error


def lines_of(file: BinaryIO) -> BinaryIO:
    """The file with a `readline` that keeps to a limit, which those of fsspec do not."""
    return BufferedReader(cast(Any, file), _LINE_BUFFER)


def size_of(location: str) -> int:
    """Bytes of a file.

    Raises:
        OSError: it cannot be asked.
    """
    if not is_uri(location):
        return os.path.getsize(location)
    system, path = system_of(location)
    try:
        return int(system.size(path) or 0)
    except Exception as error:
        raise OSError(sentence(error)) from error


def heads_of(locations: Iterable[str], size: int) -> Iterator[bytes | str]:
    """The first bytes of files, asked for many at a time, in their order; the text of the error
    where one cannot be read."""
    rest = iter(locations)
    while some := list(islice(rest, AT_ONCE)):
        opened = [system_of(location) for location in some]
        for _, group in groupby(opened, key=lambda item: id(item[0])):
            files = list(group)
            system = files[0][0]
            yield from map(_head, _ranges(system, [path for _, path in files], size))


def _ranges(system: Any, paths: list[str], size: int) -> Iterable[object]:
    try:
        return cast(
            list[object],
            system.cat_ranges(paths, [0] * len(paths), [size] * len(paths), on_error="return"),
        )
    except Exception as error:  # an old file system that raises for one of them
        return [error] * len(paths)


def _head(found: object) -> bytes | str:
    if isinstance(found, (bytes, bytearray, memoryview)):
        return bytes(cast(bytes, found))
    return sentence(found) if isinstance(found, Exception) else "it cannot be read"
