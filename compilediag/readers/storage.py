"""Files of this machine as chunks of plain bytes: as they are, gzip or Zstandard, recognised by
their first bytes; and files at URIs (s3://, gs://, hf:// and whatever else fsspec supports), listed
and copied.

Memory is bounded: nothing is decompressed whole, and what a compressed file may decompress to is
limited. A damaged file ends early, and `problem` says why. fsspec is imported only for URIs: its
import takes longer than a whole local command.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import stat
import zlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from compilediag.errors import CompilediagError, UsageError

CHUNK_BYTES = 64 << 10
"""Size of the chunks of a file that is not compressed: larger ones are slower, and cost memory."""

HEAD_BYTES = 64 << 10
"""Bytes by which the kind of a file is recognised."""

MAX_RATIO = 1100
"""gzip cannot compress better (1032); a file that decompresses to more is a bomb, or of no use."""

DIGEST_LIMIT_BYTES = 64 << 20
"""Larger files have no digest."""

SMALL_BYTES = 64 << 20
"""What any compressed file may decompress to, however small it is."""

NO_ZSTANDARD = (
    "it is compressed with Zstandard, which this Python cannot read: "
    "pip install 'compilediag[zstd]', or unpack it with `zstd -d`"
)

_GZIP = b"\x1f\x8b"
_ZSTANDARD = b"\x28\xb5\x2f\xfd"
_GZIP_FEED = 16 << 10
_ZSTANDARD_FEED = 1 << 10
"""Compressed bytes taken at a time: they become at most 16 MB (Zstandard: 32 MB) in memory."""


@dataclass(slots=True)
class PlainStream:
    """The plain bytes of one file, which can be read from its beginning any number of times.
    Nothing is opened before they are."""

    path: str
    problem: str | None = None
    """Why the file, or the rest of it, could not be read; set while `read_chunks` runs."""

    def read_chunks(self) -> Iterator[bytes]:
        """Read the plain bytes in order; ends early where `problem` says why."""
        self.problem = None
        file = open_regular(self.path)
        if file is None:
            self.problem = "it cannot be opened, or is no regular file"
            return
        try:
            with file:
                yield from self._read_plain(file)
        except OSError as error:
            self.problem = format_error(error)

    def read_head(self) -> bytes:
        """Read the first plain bytes, at most `HEAD_BYTES`."""
        content = b""
        for chunk in self.read_chunks():
            content += chunk
            if len(content) >= HEAD_BYTES:
                break
        return content[:HEAD_BYTES]

    def _read_plain(self, file: BinaryIO) -> Iterator[bytes]:
        """Read the content of an open file, plain; the file need not be able to seek."""
        magic = file.read(len(_ZSTANDARD))
        if magic.startswith(_GZIP):
            pieces = _read_pieces(magic, file, _GZIP_FEED)
            yield from self._decompress(pieces, lambda: zlib.decompressobj(wbits=31))
        elif magic.startswith(_ZSTANDARD):
            factory = _find_zstandard()
            if factory is None:
                self.problem = NO_ZSTANDARD
                return
            yield from self._decompress(_read_pieces(magic, file, _ZSTANDARD_FEED), factory)
        else:
            yield from _read_pieces(magic, file, CHUNK_BYTES)

    def _decompress(self, pieces: Iterator[bytes], factory: Callable[[], Any]) -> Iterator[bytes]:
        """Decompress to chunks, up to any damage. Members may follow each other (`cat`)."""
        decompressor: Any = None
        taken = total = 0
        for fresh in pieces:
            data = fresh
            taken += len(data)
            while data := data if decompressor is not None else data.lstrip(b"\0"):
                decompressor = factory() if decompressor is None else decompressor
                try:
                    chunk = decompressor.decompress(data)
                except Exception as error:
                    # zlib.error, and ZstdError of two packages that need not be there.
                    self.problem = f"it is damaged: {error}"
                    return
                total += len(chunk)
                if total > max(taken * MAX_RATIO, SMALL_BYTES):
                    self.problem = f"it unpacks to more than {MAX_RATIO} times its size"
                    return
                yield chunk
                data = decompressor.unused_data if decompressor.eof else b""
                decompressor = None if decompressor.eof else decompressor
        if decompressor is not None:
            self.problem = "its end is missing"


def _read_pieces(head: bytes, file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield what was read of a file and the rest of it, some bytes at a time."""
    if head:
        yield head + file.read(size)
    while data := file.read(size):
        yield data


def _find_zstandard() -> Callable[[], Any] | None:
    """Find what makes a decompressor: Python 3.14 or the package `zstandard`; None without both."""
    try:
        return importlib.import_module("compression.zstd").ZstdDecompressor
    except ImportError:
        pass
    try:
        package: Any = importlib.import_module("zstandard")
    except ImportError:
        return None
    return lambda: package.ZstdDecompressor().decompressobj()


def is_uri(location: str) -> bool:
    """True where the location names a protocol, and is for fsspec to open."""
    return "://" in location


def get_file_system(location: str) -> tuple[Any, str]:
    """Return the fsspec file system of a path or URI, and the path in it.

    Raises:
        UsageError: what fsspec needs for this protocol is not installed.
    """
    from fsspec.core import url_to_fs  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

    with convert_errors(location):
        system, path = cast(tuple[Any, str], url_to_fs(location))
        return system, path.rstrip("/")


@contextlib.contextmanager
def convert_errors(location: str) -> Generator[None, None, None]:
    """Convert whatever a file system raises to a `UsageError` of one sentence."""
    try:
        yield
    except CompilediagError:
        raise
    except Exception as error:
        raise UsageError(f"{location} cannot be used: {format_error(error)}") from error


def format_error(error: Exception) -> str:
    """Format the message of a file system's error, on one line and bounded."""
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return " ".join(text.split())[:300] or type(error).__name__


def list_files(location: str) -> dict[str, int | None]:
    """List every file below a URI, with its size in bytes where the file system lists sizes.

    Raises:
        UsageError: the URI cannot be listed, or nothing is there.
    """
    system, root = get_file_system(location)
    with convert_errors(location):
        infos = cast(dict[str, dict[str, Any]], system.find(root, detail=True))
        if not infos and not system.exists(root):
            raise FileNotFoundError(f"there is nothing at {root}")
    return {
        path[len(root) :].lstrip("/"): info.get("size")
        for path, info in infos.items()
        if path.startswith(root) and info.get("type", "file") == "file"
    }


def copy_files(location: str, folder: str) -> str:
    """Copy what lies at a URI below a folder of this machine, and return its path there.

    Raises:
        UsageError: it cannot be listed or read, or what fsspec needs for it is not installed.
    """
    names = list_files(location)
    system, root = get_file_system(location)
    # A name at a URI becomes no place elsewhere.
    safe = {name: os.path.join(folder, *name.replace("..", "_").split("/")) for name in names}
    if "" in safe:  # the URI itself is the file
        safe[""] = os.path.join(folder, os.path.basename(root) or "file")
    for path in safe.values():
        os.makedirs(os.path.dirname(path), exist_ok=True)
    with convert_errors(location):
        system.get([f"{root}/{name}" if name else root for name in safe], list(safe.values()))
    return safe.get("", folder)


def list_names(folder: str) -> list[str]:
    """List the names of the files in a folder; empty when it cannot be listed."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


_FLAGS = sum(
    getattr(os, name, 0)  # some systems lack some
    for name in ("O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC")
)


def open_regular(path: str) -> BinaryIO | None:
    """Open a file of this machine for reading; None where it is no plain file, or unreadable."""
    try:
        fd = os.open(path, _FLAGS)
    except (OSError, ValueError):
        return None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return os.fdopen(fd, "rb")
    os.close(fd)
    return None


def compute_sha256(file: BinaryIO) -> str:
    """Compute the SHA-256 of the rest of an open file, read in pieces, as hex digits."""
    digest = hashlib.sha256()
    while piece := file.read(1 << 20):
        digest.update(piece)
    return digest.hexdigest()
