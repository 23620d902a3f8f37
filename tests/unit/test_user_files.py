"""What an execution did to the user's files is undone, and nothing is lost."""

import errno
import shutil
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from compilediag.runs.certify.user_files import UserFiles, iterate_files


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("kept.txt", "changed.bin", "removed/gone.bin", "source.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def test_changes_are_undone(root: Path) -> None:
    ours = root / ".compilediag" / "run"
    ours.mkdir(parents=True)
    files = UserFiles(str(root), str(ours / "copies"), str(ours / "written"))

    def execute() -> None:
        with files:
            (root / "changed.bin").write_text("another text")
            (root / "removed" / "gone.bin").unlink()
            (root / "removed").rmdir()
            (root / "new.bin").write_text("new")
            (root / "source.py").write_text("edited meanwhile")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute()
    assert (root / "changed.bin").read_text() == "changed.bin"
    assert (root / "removed" / "gone.bin").read_text() == "removed/gone.bin"
    assert not (root / "new.bin").exists()
    assert (root / "source.py").read_text() == "edited meanwhile"
    assert sorted(files.changed) == ["changed.bin", "new.bin", "removed/gone.bin"]
    assert (ours / "written" / "changed.bin").read_text() == "another text"
    assert (ours / "written" / "new.bin").read_text() == "new"
    assert not (ours / "copies").exists()


@pytest.mark.parametrize(("below", "program"), [("", "python3.12"), ("..", "python"), ("", "sh")])
def test_where_another_program_is_at_work_nothing_is_undone(
    root: Path, below: str, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = SimpleNamespace(
        pid=-1,
        cwd=lambda: str((root / below).resolve()),
        exe=lambda: f"/usr/bin/{program}",
        create_time=lambda: 0.0,
        open_files=list,
    )
    monkeypatch.setattr(psutil, "process_iter", lambda: [other, psutil.Process()])
    files = UserFiles(str(root), str(root / ".compilediag" / "copies"), str(root / ".compilediag"))
    with files:
        (root / "changed.bin").write_text("another text")
        (root / "new.bin").write_text("new")
    stays = program == "python3.12"
    assert files.shared == stays
    assert sorted(files.changed) == ["changed.bin", "new.bin"]
    assert (root / "new.bin").exists() == stays
    texts = ["another text", "changed.bin"]
    # Whichever of the two texts is not in the file is kept.
    assert (root / "changed.bin").read_text() == texts[not stays]
    assert (root / ".compilediag" / "changed.bin").read_text() == texts[stays]


def test_the_log_of_an_earlier_program_stays_and_tells_nothing(root: Path) -> None:
    with (root / "changed.bin").open("a") as output, (root / "kept.txt").open() as read:
        files = UserFiles(str(root), str(root / ".compilediag" / "copies"), str(root / "left"))
        with files:
            print("a line of ours", file=output, flush=True)
            (root / read.name).write_text("written past a trial")
        print("and one behind it", file=output, flush=True)
    assert (root / "changed.bin").read_text() == "changed.bina line of ours\nand one behind it\n"
    assert files.changed == ["kept.txt"]


def test_a_part_of_a_file_is_no_copy(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(source: str, target: str) -> None:
        Path(target).write_text(Path(source).read_text()[:3])
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(shutil, "copy2", fill)
    files = UserFiles(str(root), str(root / ".compilediag" / "copies"), str(root / ".compilediag"))
    with files:
        (root / "changed.bin").write_text("another text")
    assert (root / "changed.bin").read_text() == "another text"
    assert files.changed == ["changed.bin (too large to be put back)"]


def test_a_file_that_cannot_be_put_back_has_a_copy(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, target: str) -> None:
        raise PermissionError(errno.EACCES, "refused")

    monkeypatch.setattr(shutil, "move", refuse)
    copies = root / ".compilediag" / "copies"
    files = UserFiles(str(root), str(copies), str(root / ".compilediag"))
    with files:
        (root / "changed.bin").write_text("another text")
    assert (copies / "changed.bin").read_text() == "changed.bin"
    assert str(copies / "changed.bin") in files.changed[0]


def test_environments_and_our_own_files_are_left_out(root: Path) -> None:
    for name in (".git/x", ".compilediag/x", "venv/pyvenv.cfg", "venv/lib/x", "a/__pycache__/x"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    names = [str(Path(path).relative_to(root)) for path in iterate_files(str(root))]
    assert names == ["changed.bin", "kept.txt", "source.py", "removed/gone.bin"]
