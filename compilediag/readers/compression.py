"""Files as chunks of plain bytes: as they are, gzip or Zstandard, recognised by their first bytes;
of this machine, or at URIs.

Memory is bounded: nothing is decompressed whole, and what a compressed file may decompress to is
limited. A damaged file ends early, and `problem` says why.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from compilediag.errors import UsageError
from compilediag.readers.storage import error_text, is_uri, open_regular, open_uri

CHUNK_BYTES = 64 << 10
"""Size of the chunks of a file that is not compressed: larger ones are slower, and cost memory."""

HEAD_BYTES = 64 << 10
"""Bytes by which the kind of a file is recognised."""

MAX_RATIO = 1100
"""gzip cannot compress better (1032); a file that decompresses to more is a bomb, or of no use."""

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
    """The plain bytes of one file, which can be read from its beginning any number of times."""

    path: str
    block_bytes: int | None = None
    """What is fetched at a time from a URI; fsspec's own by default."""
    problem: str | None = None
    """Why the file, or the rest of it, could not be read; set while `chunks` runs."""

    def chunks(self) -> Iterator[bytes]:
        """The plain bytes in order; ends early where `problem` says why.

        Raises:
            UsageError: the path is a URI, and what fsspec needs for it is not installed.
        """
        self.problem = None
        remote = is_uri(self.path)
        try:
            file = open_uri(self.path, self.block_bytes) if remote else open_regular(self.path)
            if file is None:
                self.problem = "it cannot be opened, or is no regular file"
                return
            with file:
                yield from self._plain(file)
        except UsageError:
            raise
        except Exception as error:
            if not remote and not isinstance(error, OSError):
                raise
            self.problem = error_text(error)  # fsspec's implementations raise what they like

    def head(self) -> bytes:
        """The first plain bytes, at most `HEAD_BYTES`."""
        found = b""
        for chunk in self.chunks():
            found += chunk
            if len(found) >= HEAD_BYTES:
                break
        return found[:HEAD_BYTES]

    def _plain(self, file: BinaryIO) -> Iterator[bytes]:
        """The content of an open file, plain; the file need not be able to seek."""
        magic = file.read(len(_ZSTANDARD))
        if magic.startswith(_GZIP):
            fed = _fed(magic, file, _GZIP_FEED)
            yield from self._decompressed(fed, lambda: zlib.decompressobj(wbits=31))
        elif magic.startswith(_ZSTANDARD):
            made = _zstandard()
            if made is None:
                self.problem = NO_ZSTANDARD
                return
            yield from self._decompressed(_fed(magic, file, _ZSTANDARD_FEED), made)
        else:
            yield from _fed(magic, file, CHUNK_BYTES)

    def _decompressed(self, fed: Iterator[bytes], made: Callable[[], Any]) -> Iterator[bytes]:
        """Chunks of what the file decompresses to, up to any damage. Members may follow each other,
        as `cat` makes them."""
        decompressor: Any = None
        taken = total = 0
        for fresh in fed:
            data = fresh
            taken += len(data)
            while data := data if decompressor is not None else data.lstrip(b"\0"):
                decompressor = made() if decompressor is None else decompressor
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


open_stream = PlainStream
"""Nothing is opened before the bytes are read."""


def _fed(head: bytes, file: BinaryIO, size: int) -> Iterator[bytes]:
    """What was read of a file and the rest of it, some bytes at a time."""
    if head:
        yield head + file.read(size)
    while data := file.read(size):
        yield data


def _zstandard() -> Callable[[], Any] | None:
    """Python 3.14 reads it itself; before that the package `zstandard` does."""
    try:
        return importlib.import_module("compression.zstd").ZstdDecompressor
    except ImportError:
        pass
    try:
        package: Any = importlib.import_module("zstandard")
    except ImportError:
        return None
    return lambda: package.ZstdDecompressor().decompressobj()
