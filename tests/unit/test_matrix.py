"""The version matrix: what is pinned for another torch, what runs, and that failures are told."""

from pathlib import Path

import imported_file
import pytest

matrix = imported_file.load(Path(__file__).resolve().parents[2] / "tools" / "matrix.py")


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
    assert files[0] == "tests/torch/test_torch_api.py"
    assert files[-1] == "tests/end_to_end/test_scenarios.py"
    assert len(files) == 2 + len(matrix.PLAIN_RUN) + len(matrix.COSTS) + len(matrix.VALUES)
    assert all((matrix.ROOT / name).is_file() for name in files)
