"""Files of this machine, and at URIs (s3://, gs://, hf:// and whatever else fsspec supports).

A file name found at a URI is only ever appended to the URI that the user gave. fsspec reads "::" as
the beginning of another URI, so a file whose name holds it is never opened. fsspec is imported only
for URIs: its import takes longer than a whole local command.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Generator, Iterator
from typing import Any, BinaryIO, NamedTuple, cast

from compilediag.errors import CompilediagError, UsageError

CHAIN = "::"
"""Joins the links of a chained URI: "simplecache::s3://bucket/runs"."""

BATCH_FILES = 200
"""Files requested together."""

_LOCAL = ("file://", "local://")


def is_uri(location: str) -> bool:
    """Whether the location names a protocol, and is for fsspec to open."""
    return "://" in location


def local_path(location: str) -> str | None:
    """The path behind a "file://" URI, which needs no fsspec; None for other URIs."""
    prefix = next((prefix for prefix in _LOCAL if location.startswith(prefix)), None)
    if prefix is None or CHAIN in location:
        return None
    return os.path.abspath(location.removeprefix(prefix))


def file_system(location: str) -> tuple[Any, str]:
    """The fsspec file system of a path or URI, and the path in it.

    Raises:
        UsageError: what fsspec needs for this protocol is not installed.
    """
    from fsspec.core import url_to_fs  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

    with storage_errors(location):
        system, path = cast(tuple[Any, str], url_to_fs(location))
        return system, path.rstrip("/")


@contextlib.contextmanager
def storage_errors(location: str) -> Generator[None, None, None]:
    """Turns whatever a file system raises into a `UsageError` of one sentence."""
    try:
        yield
    except CompilediagError:
        raise
    except Exception as error:
        raise UsageError(f"{location} cannot be used: {error_text(error)}") from error


def error_text(error: Exception) -> str:
    """The message of a file system's error, on one line and bounded."""
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return " ".join(text.split())[:300] or type(error).__name__


class FoundFile(NamedTuple):
    """A file below a folder or URI."""

    name: str
    """Its path from there, with "/" between its parts; empty where the URI itself is the file."""
    empty: bool = False
    """Known to have no bytes: not every file system lists sizes."""
    openable: bool = True
    """False where fsspec would read the name as another URI."""


def files_below(location: str) -> Iterator[FoundFile]:
    """Every file in and below a folder or URI, a folder's own files before those of its folders.
    Links inside a folder of this machine are left out.

    Raises:
        UsageError: the URI cannot be listed, or nothing is there.
    """
    if not is_uri(location):
        for folder, folders, names in os.walk(location):
            folders.sort()
            start = os.path.relpath(folder, location)
            for name in sorted(names):
                if not os.path.islink(os.path.join(folder, name)):
                    yield FoundFile(name if start == "." else f"{start}/{name}")
        return
    found = listing(location)
    for name in sorted(found, key=_folder_first):
        openable = CHAIN not in name and ".." not in name.split("/")
        yield FoundFile(name, found[name] == 0, openable)


def listing(location: str) -> dict[str, int | None]:
    """Every file below a URI, with its size in bytes where the file system lists sizes.

    Raises:
        UsageError: the URI cannot be listed, or nothing is there.
    """
    system, root = file_system(location)
    with storage_errors(location):
        found = cast(dict[str, dict[str, Any]], system.find(root, detail=True))
        if not found and not system.exists(root):
            raise FileNotFoundError(f"there is nothing at {root}")
    return {
        path[len(root) :].lstrip("/"): info.get("size")
        for path, info in found.items()
        if path.startswith(root) and info.get("type", "file") == "file"
    }


def _folder_first(name: str) -> list[tuple[bool, str]]:
    *folders, file = name.split("/")
    return [*((True, folder) for folder in folders), (False, file)]


def join(location: str, name: str) -> str:
    """The path or URI of a file below another one."""
    if not name:
        return location
    if not is_uri(location):
        return os.path.join(location, name)
    links, index = _links(location)
    links[index] = f"{links[index].rstrip('/')}/{name}"
    return CHAIN.join(links)


def parent(location: str) -> str:
    """The folder of a path or URI."""
    if not is_uri(location):
        return os.path.dirname(location)
    links, index = _links(location)
    protocol, _, path = links[index].partition("://")
    links[index] = f"{protocol}://{path.rpartition('/')[0]}"
    return CHAIN.join(links)


def _links(location: str) -> tuple[list[str], int]:
    """The links of a chained URI, and which of them has the path: others take that of the next."""
    links = location.split(CHAIN)
    return links, next(index for index, link in enumerate(links) if "://" in link)


def names_in(folder: str) -> list[str]:
    """Names of the files in a folder; empty when it cannot be listed."""
    if not is_uri(folder):
        try:
            return os.listdir(folder)
        except OSError:
            return []
    system, root = file_system(folder)
    try:
        listed = cast(list[dict[str, Any]], system.ls(root, detail=True))
    except Exception:  # fsspec's implementations raise what they like
        return []
    names = [str(item["name"]).rpartition("/")[2] for item in listed if item["type"] == "file"]
    return [name for name in names if CHAIN not in name]


def open_regular(path: str) -> BinaryIO | None:
    """The file of this machine opened for reading, unless it is a link, a pipe or a device."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return os.fdopen(fd, "rb")
    os.close(fd)
    return None


def open_uri(location: str, block_bytes: int | None = None) -> BinaryIO:
    """The file at a URI opened for reading, `block_bytes` at a time (fsspec's own by default).

    Raises:
        UsageError: what fsspec needs for this protocol is not installed.
        OSError: the file cannot be opened.
    """
    system, path = file_system(location)
    try:
        return cast(BinaryIO, system.open(path, "rb", block_size=block_bytes))
    except Exception as error:
        raise OSError(error_text(error)) from error


def size_of(location: str) -> int:
    """The size of a file in bytes.

    Raises:
        OSError: it cannot be determined.
    """
    if not is_uri(location):
        return os.path.getsize(location)
    system, path = file_system(location)
    try:
        return int(system.size(path) or 0)
    except Exception as error:
        raise OSError(error_text(error)) from error
