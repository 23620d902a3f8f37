"""Edited files: written over what was tried, and over nothing else."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from compilediag.errors import UsageError
from compilediag.rules.changes import Edit, EditImpossible, ProgramChange
from compilediag.runs.fix.sources import apply, format_patch, list_possible, make_changes

TEXT = "import torch\nprint(1)\n"
EDIT = Edit("program.py", 2, "before", ("torch._dynamo.reset()",))


def as_ran() -> dict[str, str]:
    """The digest of the file as it is."""
    return {"program.py": hashlib.sha256(Path("program.py").read_bytes()).hexdigest()}


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that git has as it is."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "program.py"
    file.write_text(TEXT, encoding="utf-8")
    names = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "."]):
        subprocess.run(["git", *names, *words], check=True)
    return file


def test_an_edit_is_written(program: Path) -> None:
    assert apply(make_changes([EDIT], as_ran()), force=False) == ["program.py"]
    assert "_dynamo.reset" in program.read_text(encoding="utf-8")


def test_a_file_that_changed_since_is_left_alone(program: Path) -> None:
    """Also by force: the edit was tried on another text."""
    changes = make_changes([EDIT], as_ran())
    program.write_text(TEXT + "\n", encoding="utf-8")
    with pytest.raises(UsageError, match="has changed since it was tried"):
        apply(changes, force=True)
    assert program.read_text(encoding="utf-8") == TEXT + "\n"


def test_changes_that_git_does_not_have_are_written_over_by_force_alone(program: Path) -> None:
    program.write_text(TEXT + "\n", encoding="utf-8")
    changes = make_changes([EDIT], as_ran())
    with pytest.raises(UsageError, match="not committed"):
        apply(changes, force=False)
    assert program.read_text(encoding="utf-8") == TEXT + "\n"
    assert apply(changes, force=True) == ["program.py"]


def test_a_file_outside_of_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(TEXT, encoding="utf-8")
    with pytest.raises(UsageError, match="in no git repository"):
        apply(make_changes([EDIT], as_ran()), force=False)


def test_a_patch_without_a_last_newline(program: Path) -> None:
    """As diff writes it."""
    program.write_text(TEXT.rstrip("\n"), encoding="utf-8")
    patch = format_patch(make_changes([EDIT], as_ran()))
    (program.parent / "fix.patch").write_text(patch, encoding="utf-8")
    subprocess.run(["git", "apply", "fix.patch"], check=True, cwd=program.parent)
    expected = "import torch\ntorch._dynamo.reset()\nprint(1)"
    assert program.read_text(encoding="utf-8") == expected


def test_a_file_that_is_not_what_ran_is_not_edited(program: Path) -> None:
    """Its lines are others: what was proved was proved of another text."""
    ran = as_ran()
    program.write_text(f"\n{TEXT}", encoding="utf-8")
    with pytest.raises(EditImpossible, match=r"program\.py is not what ran any more"):
        make_changes([EDIT], ran)


def test_what_cannot_be_edited_is_not_tried(program: Path) -> None:
    """A line that is no statement, a file that is gone."""
    fits = ProgramChange("source", "a", "", edits=(EDIT,))
    other = ProgramChange("source", "b", "", edits=(Edit("program.py", 9, "before", ("pass",)),))
    gone = ProgramChange("source", "c", "", edits=(Edit("gone.py", 1, "before", ("pass",)),))
    plain = ProgramChange("environment", "d", "", variables=(("A", "1"),))
    assert list_possible([fits, other, gone, plain], as_ran()).possible == (fits, plain)
