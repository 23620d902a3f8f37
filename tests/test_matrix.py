"""The version matrix: what is pinned for another torch, what runs, and that failures are told."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parent.parent / "tools" / "matrix.py"
SPEC = importlib.util.spec_from_file_location("matrix", PATH)
assert SPEC is not None
assert SPEC.loader is not None
matrix = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(matrix)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environments of the matrix lie in a temporary folder."""
    monkeypatch.setattr(matrix, "FOLDER", tmp_path / "matrix")
    return tmp_path / "matrix"


def test_pins_hold_the_other_torch(folder: Path) -> None:
    """torch is replaced, numpy is free, everything else stays pinned as in constraints.txt."""
    pins = matrix.constraints_for("2.7.1").read_text(encoding="utf-8").splitlines()
    assert pins[0] == "torch==2.7.1"
    assert sum(line.startswith(("torch==", "numpy")) for line in pins) == 1
    assert any(line.startswith("msgspec==") for line in pins)


def test_what_is_run_exists(folder: Path) -> None:
    """The tests that the matrix names are files of the project."""
    stages = matrix.stages("2.7.1", folder / "torch-2.7.1", Path("python"))
    files = [word for _, command in stages for word in command if word.startswith("tests/")]
    assert files == ["tests/test_torch_api.py", "tests/test_scenarios.py"]
    assert all((matrix.ROOT / name).is_file() for name in files)


@pytest.mark.parametrize("keep", [True, False])
def test_a_failure_is_told_and_ends_the_version(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, keep: bool
) -> None:
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
