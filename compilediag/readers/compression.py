"""Files as pieces of plain bytes: as they are, gzip or Zstandard, told by their first bytes; of
this machine, or at URIs.

Memory is bounded: nothing is ever unpacked whole. What a compressed file may unpack to is bounded
too, and what is damaged ends the file quietly, with the damage told.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any, BinaryIO

from compilediag.readers.journal import open_regular
from compilediag.readers.storage import is_uri, open_uri, sentence

BLOCK_BYTES = 64 << 10
"""Bytes given at a time, or somewhat more: larger pieces are slower, and cost memory."""

SNIFFED_BYTES = 64 << 10
"""Bytes from which is told what a file is."""

NOT_OPENED = "it cannot be opened, or is no regular file"

LARGEST_RATIO = 1100
"""gzip cannot do more (1032); a file that unpacks to more is a bomb, or of no use."""

SMALL_BYTES = 64 << 20
"""What any compressed file may unpack to, however small it is."""

NO_ZSTANDARD = (
    "it is compressed with Zstandard, which this Python cannot read: "
    "pip install 'compilediag[zstd]', or unpack it with `zstd -d`"
)

_GZIP = b"\x1f\x8b"
_ZSTANDARD = b"\x28\xb5\x2f\xfd"
_GZIP_FEED = 16 << 10
_ZSTANDARD_FEED = 1 << 10
"""Compressed bytes unpacked at a time: they become at most 16 MB, whatever they hold (32 MB)."""


class Opened:
    """One file that can be read from its beginning, as often as is asked."""

    def __init__(self, path: str, block_bytes: int | None = None) -> None:
        """`block_bytes`: what is fetched at a time of a file at a URI; fsspec's own by default."""
        self.path = path
        self.block_bytes = block_bytes
        self.problem: str | None = None
        """Why the file, or the rest of it, could not be read; set while `pieces` runs."""

    def pieces(self) -> Iterator[bytes]:
        """The plain bytes in order; ends early where `problem` tells.

        Raises:
            UsageError: the path is a URI, and what it needs is not installed.
        """
        self.problem = None
        file = self._file()
        if file is None:
            return
        with file:
            try:
                yield from self.unpacked(file)
            except OSError as error:
                self.problem = error.strerror or str(error)
            except Exception as error:
                if not is_uri(self.path):
                    raise
                # A file system of others raises what it likes.
                self.problem = sentence(error)

    def _file(self) -> BinaryIO | None:
        if not is_uri(self.path):
            file = open_regular(self.path)
            self.problem = NOT_OPENED if file is None else None
            return file
        try:
            return open_uri(self.path, self.block_bytes)
        except OSError as error:
            self.problem = str(error)
            return None

    def head(self) -> bytes:
        """The first plain bytes, at most `SNIFFED_BYTES`."""
        return _first(self.pieces())

    def unpacked(self, file: BinaryIO) -> Iterator[bytes]:
        """What an open file holds, plain; it need not be able to seek."""
        head = file.read(len(_ZSTANDARD))
        if head.startswith(_GZIP):
            parts = _fed(head, file, _GZIP_FEED)
            yield from self._unpacked(parts, lambda: zlib.decompressobj(wbits=31))
        elif head.startswith(_ZSTANDARD):
            made = _zstandard()
            if made is None:
                self.problem = NO_ZSTANDARD
                return
            yield from self._unpacked(_fed(head, file, _ZSTANDARD_FEED), made)
        else:
            yield from _fed(head, file, BLOCK_BYTES)

    def _unpacked(self, fed: Iterator[bytes], made: Callable[[], Any]) -> Iterator[bytes]:
        """Pieces of what the file unpacks to; what comes before damage is given."""
        waiting: list[bytes] = []
        size = total = 0
        for taken, piece in self._parts(fed, made):
            total += len(piece)
            if total > max(taken * LARGEST_RATIO, SMALL_BYTES):
                self.problem = f"it unpacks to more than {LARGEST_RATIO} times its size"
                break
            waiting.append(piece)
            size += len(piece)
            if size >= BLOCK_BYTES:
                yield b"".join(waiting)
                waiting, size = [], 0
        if waiting:
            yield b"".join(waiting)

    def _parts(self, fed: Iterator[bytes], made: Callable[[], Any]) -> Iterator[tuple[int, bytes]]:
        """Bytes taken so far, and what each part of the file unpacks to; members may follow each
        other, as `cat` makes."""
        unpacker: Any = None
        taken = 0
        for fresh in fed:
            data = fresh
            taken += len(data)
            while data := data if unpacker is not None else data.lstrip(b"\0"):
                unpacker = made() if unpacker is None else unpacker
                try:
                    yield taken, unpacker.decompress(data)
                except Exception as error:
                    # zlib.error, and ZstdError of two packages that need not be there.
                    self.problem = f"it is damaged: {error}"
                    return
                data = unpacker.unused_data if unpacker.eof else b""
                unpacker = None if unpacker.eof else unpacker
        if unpacker is not None:
            self.problem = "its end is missing"


def plain_head(raw: bytes) -> bytes:
    """The first plain bytes of a file of which the first bytes are given."""
    return _first(Opened("").unpacked(BytesIO(raw)))


def _first(pieces: Iterator[bytes]) -> bytes:
    found = b""
    for piece in pieces:
        found += piece
        if len(found) >= SNIFFED_BYTES:
            break
    return found[:SNIFFED_BYTES]


def _fed(head: bytes, file: BinaryIO, size: int) -> Iterator[bytes]:
    """What was read of a file, with the rest of it, some bytes at a time."""
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
