"""Files as pieces of plain bytes: as they are, gzip or Zstandard, told by their first bytes.

Memory is bounded: nothing is ever unpacked whole. What a compressed file may unpack to is bounded
too, and what is damaged ends the file quietly, with the damage told.
"""

from __future__ import annotations

import importlib
import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from compilediag.readers.journal import open_regular

BLOCK_BYTES = 64 << 10
"""Bytes given at a time, or somewhat more: larger pieces are slower, and cost memory."""

SNIFFED_BYTES = 64 << 10
"""Bytes from which is told what a file is."""

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

    def __init__(self, path: str) -> None:
        self.path = path
        self.problem: str | None = None
        """Why the file, or the rest of it, could not be read; set while `pieces` runs."""

    def pieces(self) -> Iterator[bytes]:
        """The plain bytes in order; ends early where `problem` tells."""
        self.problem = None
        file = open_regular(self.path)
        if file is None:
            self.problem = "it cannot be opened, or is no regular file"
            return
        with file:
            try:
                yield from self._read(file)
            except OSError as error:
                self.problem = error.strerror or str(error)

    def head(self) -> bytes:
        """The first plain bytes, at most `SNIFFED_BYTES`."""
        found = b""
        for piece in self.pieces():
            found += piece
            if len(found) >= SNIFFED_BYTES:
                break
        return found[:SNIFFED_BYTES]

    def _read(self, file: BinaryIO) -> Iterator[bytes]:
        head = file.read(len(_ZSTANDARD))
        file.seek(0)
        if head.startswith(_GZIP):
            yield from self._unpacked(file, lambda: zlib.decompressobj(wbits=31), _GZIP_FEED)
        elif head.startswith(_ZSTANDARD):
            made = _zstandard()
            if made is None:
                self.problem = NO_ZSTANDARD
                return
            yield from self._unpacked(file, made, _ZSTANDARD_FEED)
        else:
            while piece := file.read(BLOCK_BYTES):
                yield piece

    def _unpacked(self, file: BinaryIO, made: Callable[[], Any], feed: int) -> Iterator[bytes]:
        """Pieces of what the file unpacks to; what comes before damage is given."""
        room = max(os.fstat(file.fileno()).st_size * LARGEST_RATIO, SMALL_BYTES)
        waiting: list[bytes] = []
        size = 0
        for piece in self._parts(file, made, feed):
            room -= len(piece)
            if room < 0:
                self.problem = f"it unpacks to more than {LARGEST_RATIO} times its size"
                break
            waiting.append(piece)
            size += len(piece)
            if size >= BLOCK_BYTES:
                yield b"".join(waiting)
                waiting, size = [], 0
        if waiting:
            yield b"".join(waiting)

    def _parts(self, file: BinaryIO, made: Callable[[], Any], feed: int) -> Iterator[bytes]:
        """What each part of the file unpacks to; members may follow each other, as `cat` makes."""
        unpacker: Any = None
        while data := file.read(feed):
            while data := data if unpacker is not None else data.lstrip(b"\0"):
                unpacker = made() if unpacker is None else unpacker
                try:
                    yield unpacker.decompress(data)
                except Exception as error:
                    # zlib.error, and ZstdError of two packages that need not be there.
                    self.problem = f"it is damaged: {error}"
                    return
                data = unpacker.unused_data if unpacker.eof else b""
                unpacker = None if unpacker.eof else unpacker
        if unpacker is not None:
            self.problem = "its end is missing"


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
