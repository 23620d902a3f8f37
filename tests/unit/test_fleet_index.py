"""The index beside receipts: the files are the truth whatever happens to it, or to them."""

import os
import random
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet_pieces import NUMBER, indexed_copy, receipts_of_two_lanes, same, truth
from many_receipts import content, measured, written

from compilediag.extensions.fleet import folder
from compilediag.extensions.fleet import folder as folders
from compilediag.extensions.fleet.folder import INDEX_NAME, Fleet, load_fleet, load_newest


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return receipts_of_two_lanes(tmp_path_factory.mktemp("made"))


@pytest.fixture
def receipts(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of them with an index; files count as settled at once."""
    monkeypatch.setattr(folders, "SETTLED_S", -1.0)
    return indexed_copy(made, tmp_path / "receipts")


def medians(fleet: Fleet) -> list[float]:
    return [entry.values["step_s"] for entry in fleet.entries]


def test_only_what_is_wanted_is_kept(receipts: Path) -> None:
    """A lane can be asked for, from the index as from the files."""
    found = load_fleet(str(receipts), lambda lane, created_s: lane == "gpt/train")
    assert medians(found) == list(range(0, NUMBER, 2))


def test_changed_added_and_deleted_files_are_noticed(receipts: Path) -> None:
    """Each is read, or forgotten, the next time; nothing else is read again."""
    (receipts / "r00003.json").write_bytes(content(3, measured(steps__median=333.0)))
    (receipts / "r00007.json").unlink()
    (receipts / "new.json").write_bytes(content(100, measured(steps__median=100.0)))
    found = load_fleet(str(receipts))
    assert found.files_read == 2
    assert 333.0 in medians(found)
    assert 100.0 in medians(found)
    assert 7.0 not in medians(found)
    assert same(found, receipts)
    assert load_fleet(str(receipts)).files_read == 0


def test_a_change_that_hides_is_noticed(receipts: Path) -> None:
    """The same size and the same time of modification: the system's own time tells."""
    file = receipts / "r00003.json"
    before = file.stat()
    text = file.read_bytes()
    assert text.count(b'"median": 3') == 1
    file.write_bytes(text.replace(b'"median": 3', b'"median": 4'))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_size == before.st_size
    assert medians(load_fleet(str(receipts)))[3] == 4.0


def test_fresh_files_are_read_again(made: Path, tmp_path: Path) -> None:
    """A file that changed a moment ago may change again without a trace: it is not trusted yet."""
    folder = tmp_path / "receipts"
    shutil.copytree(made, folder, copy_function=shutil.copyfile)
    assert load_fleet(str(folder)).files_read == NUMBER
    assert load_fleet(str(folder)).files_read == NUMBER


@pytest.mark.parametrize("damage", ["cut", "zeros", "noise", "no text"])
def test_a_damaged_index_is_made_again(receipts: Path, damage: str) -> None:
    """What SQLite finds damaged is not used: the answer is that of the files, with a note, and the
    index is whole again afterwards."""
    path = receipts / INDEX_NAME
    expected = truth(receipts).entries
    whole = bytearray(path.read_bytes())
    if damage == "cut":
        del whole[5000:]
    elif damage == "zeros":
        whole[4096:] = bytes(len(whole) - 4096)
    elif damage == "noise":
        whole[4096:12288] = random.Random(7).randbytes(8192)
    else:
        whole = whole.replace(b"r000", b"\xff\xff\xff\xff")
    path.write_bytes(whole)
    assert load_newest(str(receipts), "gpt/train", 5) is None
    found = load_fleet(str(receipts))
    assert found.entries == expected
    assert found.files_read == NUMBER
    if damage != "no text":
        assert found.notes == ("the index was damaged: every file was read",)
    assert load_fleet(str(receipts)).files_read == 0


def test_an_index_of_another_version_is_made_again(receipts: Path, monkeypatch) -> None:
    """What another version kept is not trusted: it may have kept something else."""
    with monkeypatch.context() as patch:
        patch.setattr(folder, "__version__", "99.0")
        assert load_fleet(str(receipts)).files_read == NUMBER
        assert load_fleet(str(receipts)).files_read == 0
    assert load_fleet(str(receipts)).files_read == NUMBER
    assert load_fleet(str(receipts)).files_read == 0


@pytest.mark.parametrize("kind", ["text", "database", "folder", "damaged head"])
def test_what_is_not_our_index_is_left_alone(receipts: Path, kind: str) -> None:
    """Something else of that name, a database of another program too, is neither read nor written
    over; the answer is that of the files, with a word about it."""
    path = receipts / INDEX_NAME
    if kind == "damaged head":
        path.write_bytes(b"x" * 16 + path.read_bytes()[16:])
    else:
        path.unlink()
    if kind == "text":
        path.write_text("mine", encoding="utf-8")
    elif kind == "folder":
        path.mkdir()
    elif kind == "database":
        with sqlite3.connect(path) as theirs:
            theirs.execute("CREATE TABLE files (path TEXT)")
        theirs.close()
    before = path.read_bytes() if path.is_file() else None
    found = load_fleet(str(receipts))
    assert medians(found) == list(range(NUMBER))
    assert INDEX_NAME in found.notes[0]
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_folder_that_takes_no_index_is_read(made: Path, tmp_path: Path, monkeypatch) -> None:
    """A read-only or full disk costs time, not the answer, and leaves no half of an index."""

    def refuse(*arguments: object, **options: object) -> None:
        raise sqlite3.OperationalError("attempt to write a readonly database")

    folder = tmp_path / "receipts"
    shutil.copytree(made, folder)
    monkeypatch.setattr(sqlite3, "connect", refuse)
    found = load_fleet(str(folder))
    assert medians(found) == list(range(NUMBER))
    assert "attempt to write a readonly database" in found.notes[0]
    assert [name for name in os.listdir(folder) if not name.endswith(".json")] == []


def test_a_writer_that_fails_leaves_the_old_index(receipts: Path) -> None:
    """A transaction is whole or not at all."""

    def rows() -> Iterator[folder.Row]:
        yield folder.Row("new.json", "gpt/train", 1.0, b"", b"")
        raise KeyboardInterrupt

    before = list(folder.read_rows(str(receipts)))
    with pytest.raises(KeyboardInterrupt):
        folder.write_rows(str(receipts), rows(), ["r00001.json"])
    assert list(folder.read_rows(str(receipts))) == before
    assert [name for name in os.listdir(receipts) if not name.endswith(".json")] == [INDEX_NAME]


def test_an_index_serves_where_nothing_can_be_written(receipts: Path) -> None:
    """It is opened without locks or files beside it."""
    before = sorted(os.listdir(receipts))
    receipts.chmod(0o555)
    try:
        assert load_fleet(str(receipts)).files_read == 0
    finally:
        receipts.chmod(0o755)
    assert sorted(os.listdir(receipts)) == before


def test_small_folders_get_no_index(tmp_path: Path) -> None:
    """A few receipts are read as fast as an index is: nothing is left among them."""
    written(tmp_path / "few", range(5), lambda n: measured())
    assert len(load_fleet(str(tmp_path / "few")).entries) == 5
    assert len(os.listdir(tmp_path / "few")) == 5


def test_names_that_are_no_text_are_read_every_time(receipts: Path) -> None:
    """They cannot stand in the index; they are counted all the same."""
    odd = os.fsencode(str(receipts)) + b"/odd\xff.json"
    with open(odd, "wb") as file:
        file.write(content(200))
    for _ in range(2):
        found = load_fleet(str(receipts))
        assert found.files_read == 1
        assert len(found.entries) == NUMBER + 1


def test_the_newest_of_a_lane_come_from_the_index_alone(receipts: Path) -> None:
    """The newest of a lane, in the order of time, with a word that nothing else was looked at."""
    found = load_newest(str(receipts), "gpt/train", 5)
    assert medians(found) == [50, 52, 54, 56, 58]
    assert "as indexed" in found.notes[0]
    (receipts / "r00056.json").write_bytes(content(56, measured(steps__median=1.0)))
    assert load_newest(str(receipts), "gpt/train", 5) is None
    assert load_newest(str(receipts), "vit/train", 5) is not None
    (receipts / INDEX_NAME).unlink()
    assert load_newest(str(receipts), "vit/train", 5) is None
