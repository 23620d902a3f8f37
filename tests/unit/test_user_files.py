"""What an execution did to the user's files is undone, and nothing is lost."""

from pathlib import Path

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


def test_environments_and_our_own_files_are_left_out(root: Path) -> None:
    for name in (".git/x", ".compilediag/x", "venv/pyvenv.cfg", "venv/lib/x", "a/__pycache__/x"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    names = [str(Path(path).relative_to(root)) for path in iterate_files(str(root))]
    assert names == ["changed.bin", "kept.txt", "source.py", "removed/gone.bin"]
