"""Source lines in a receipt: those that ran, or none."""

import hashlib
import os
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from screens import stored

from compilediag.receipt.schema.compiles import ExcerptRecord
from compilediag.runs.pipeline import MAX_CHARS, read_excerpts

SOURCE = f"one\n{'x' * (MAX_CHARS + 1)}\nthree\nfour\nfive\nsix\n"
LONG_AGO, LATER = "2020-01-01T00:00:00Z", "2999-01-01T00:00:00Z"


def read(
    file: str, digests: dict[str, str], started: str = LONG_AGO, imported: tuple[str, ...] = ()
) -> tuple[ExcerptRecord, ...]:
    """The excerpts of a finding at line 3 of a file, whose value line 5 changes."""
    finding = stored("findings").findings[0]
    place = msgspec.structs.replace(finding.location, file=file, line=3)
    evidence = {"writers": [{"function": "setc", "file": file, "line": 5}]}
    finding = msgspec.structs.replace(finding, location=place, evidence=evidence)
    process = SimpleNamespace(
        started=SimpleNamespace(cwd=os.getcwd(), started_utc=started),
        ended=SimpleNamespace(sources=imported),
    )
    return read_excerpts([finding], SimpleNamespace(processes=[process]), digests).get("F1", ())


def test_lines_are_those_that_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those around the place, then around the writer; one that is too long ends them."""
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(SOURCE)
    digest = hashlib.sha256(SOURCE.encode()).hexdigest()
    shown = read("model.py", {"model.py": digest})
    assert [(one.line, one.first, one.lines) for one in shown] == [
        (3, 3, ("three", "four", "five")),
        (5, 3, ("three", "four", "five", "six", "")),
    ]
    assert read("model.py", {}, LATER) == shown


def test_what_the_program_imports_from_elsewhere_is_shown(tmp_path: Path, monkeypatch) -> None:
    """As a script that puts the folder beside its own on `sys.path`."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "model.py").write_text(SOURCE)
    assert len(read("../here/../model.py", {}, LATER, ("../model.py",))) == 2


@pytest.mark.parametrize(
    "name", ["changed.py", "gone.py", "../outside.py", "secrets.txt", "link.py", "later.py"]
)
def test_other_source_is_left_out(name: str, tmp_path: Path, monkeypatch) -> None:
    """An event comes from anywhere: it takes no file of this machine, and none of another state."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for file in ("changed.py", "../outside.py", "secrets.txt", "later.py"):
        Path(file).write_text(SOURCE)
    os.symlink("/etc/passwd", "link.py")
    digests = {"changed.py": "0" * 64}
    assert read(name, digests, LONG_AGO if name == "later.py" else LATER) == ()
