"""Files written in one move."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from compilediag_harness.base import atomic_write


def test_pieces_take_the_place_of_the_file(tmp_path: Path) -> None:
    """The size returned is that of the file, and nothing else is left in the folder."""
    path = tmp_path / "a.json"
    path.write_bytes(b"old, and longer than what is new")
    assert atomic_write.write(path, (b"new", b"", b" content")) == len(b"new content")
    assert path.read_bytes() == b"new content"
    assert list(tmp_path.iterdir()) == [path]


def test_what_fails_halfway_leaves_the_old_file(tmp_path: Path) -> None:
    """An error while the pieces are made: the old file stays, and no temporary one."""
    path = tmp_path / "a.json"
    path.write_bytes(b"old")

    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        atomic_write.write(path, pieces())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("flushed", [True, False])
def test_the_disk_is_waited_for_where_it_is_asked(tmp_path, monkeypatch, *, flushed: bool) -> None:
    """The file and its folder are flushed, or neither."""
    calls: list[int] = []
    monkeypatch.setattr(os, "fsync", calls.append)
    atomic_write.write(tmp_path / "a.json", (b"x",), flushed=flushed)
    assert len(calls) == (2 if flushed else 0)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """The file behind it is replaced."""
    (tmp_path / "there").mkdir()
    real, link = tmp_path / "there" / "a.json", tmp_path / "link.json"
    real.write_bytes(b"old")
    link.symlink_to(real)
    atomic_write.write(link, (b"new",))
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
