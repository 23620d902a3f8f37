"""Plain, gzip and Zstandard files as pieces of bytes, damaged ones too."""

import gzip
import importlib
import os
import sys
from pathlib import Path

import pytest

from compilediag.readers import storage
from compilediag.readers.storage import NO_ZSTANDARD, PlainStream

CONTENT = b"".join(b"line %d of a trace\n" % number for number in range(40_000))


def opened(path: Path, content: bytes) -> tuple[bytes, str | None]:
    path.write_bytes(content)
    file = PlainStream(str(path))
    return b"".join(file.read_chunks()), file.problem


def test_plain_and_gzip(tmp_path: Path) -> None:
    """What a file is, its bytes tell and not its name; members that follow each other are read."""
    packed = gzip.compress(CONTENT)
    for content, plain in ((CONTENT, CONTENT), (packed, CONTENT), (packed * 2, CONTENT * 2)):
        assert opened(tmp_path / "trace.log", content) == (plain, None)


def test_zstandard(tmp_path: Path) -> None:
    """With Python 3.14 or the package."""
    package = pytest.importorskip("zstandard")
    packed = package.ZstdCompressor().compress(CONTENT)
    assert opened(tmp_path / "a", packed) == (CONTENT, None)
    read, problem = opened(tmp_path / "b", packed[: len(packed) // 2])
    assert CONTENT.startswith(read)
    assert problem == "its end is missing"


def test_zstandard_that_cannot_be_read_names_the_package(tmp_path: Path, monkeypatch) -> None:
    """No package: the file is left, with a sentence."""
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ImportError):
        importlib.import_module("zstandard")
    assert opened(tmp_path / "a", b"\x28\xb5\x2f\xfd rest") == (b"", NO_ZSTANDARD)


def test_a_cut_file_gives_what_it_has(tmp_path: Path) -> None:
    """And says that its end is missing."""
    packed = gzip.compress(CONTENT)
    read, problem = opened(tmp_path / "a", packed[: len(packed) // 2])
    assert CONTENT.startswith(read)
    assert len(read) > len(CONTENT) // 4
    assert problem == "its end is missing"


def test_damage_ends_the_file(tmp_path: Path) -> None:
    """Without an exception."""
    packed = bytearray(gzip.compress(CONTENT))
    packed[-6] ^= 0xFF  # a byte of the checksum
    read, problem = opened(tmp_path / "a", bytes(packed))
    assert CONTENT.startswith(read)
    assert str(problem).startswith("it is damaged")


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes out is bounded by what went in."""
    monkeypatch.setattr(storage, "SMALL_BYTES", 100_000)
    monkeypatch.setattr(storage, "MAX_RATIO", 10)
    read, problem = opened(tmp_path / "a", gzip.compress(bytes(2_000_000)))
    assert len(read) <= 100_000
    assert problem == "it unpacks to more than 10 times its size"


def test_what_is_no_regular_file_is_a_problem(tmp_path: Path) -> None:
    """A pipe would wait for ever."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "absent"):
        file = PlainStream(str(path))
        assert list(file.read_chunks()) == []
        assert file.problem == "it cannot be opened, or is no regular file"
