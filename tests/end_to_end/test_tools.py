"""The version matrix: what is pinned for another torch, what runs, and that failures are told."""

import sys
from pathlib import Path

import imported_file
import pytest

matrix = imported_file.load(Path(__file__).resolve().parents[2] / "tools" / "matrix.py")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environments of the matrix lie in a temporary folder."""
    monkeypatch.setattr(matrix, "FOLDER", tmp_path / "matrix")
    return tmp_path / "matrix"


@pytest.mark.parametrize("keep", [True, False])
def test_a_failure_is_told_and_ends_the_version(folder: Path, monkeypatch, *, keep: bool) -> None:
    """The first stage that fails is named, later ones do not run; the folder goes unless kept."""
    environment = folder / "torch-9.9"
    environment.mkdir(parents=True)
    ran = folder / "ran"

    def stages(version: str, where: Path, python: Path) -> list[tuple[str, list[str]]]:
        fails = [sys.executable, "-c", "raise SystemExit(1)"]
        return [("install", fails), ("tests", [sys.executable, "-c", f"open({str(ran)!r}, 'w')"])]

    monkeypatch.setattr(matrix, "stages", stages)
    problem, _ = matrix.check("9.9", keep=keep)
    assert problem == "install failed"
    assert not ran.exists()
    assert environment.exists() is keep


measure = imported_file.load(Path(__file__).parents[1] / "benchmarks" / "measure.py")


def test_a_failing_program_is_no_measurement() -> None:
    """A child that fails raises with what it said, instead of being timed."""
    with pytest.raises(RuntimeError, match="ended with 3:\nbroken"):
        measure.cpu_seconds(
            [sys.executable, "-c", "import sys; print('broken', file=sys.stderr); sys.exit(3)"]
        )
