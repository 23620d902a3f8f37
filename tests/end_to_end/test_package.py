"""The wheel in an environment with nothing else in it: small, and of use without torch."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import captured

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
TRACE = DATA / "traces" / "recompile_limit.log.gz"

MAX_MIB = 40.0
"""Of compilediag with all that it needs; torch alone is twenty times as much."""

OF_PIP = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
"""Packages that an empty environment has, or not, by the version of Python."""


@dataclass(frozen=True)
class Environment:
    """An environment of its own, and a folder to work in."""

    python: Path
    folder: Path

    def run(self, *words: str, code: int = 0) -> str:
        """What a command writes, in one line.

        Args:
            words: after `compilediag`.
            code: the exit code that it must have.
        """
        done = captured(str(self.python), "-m", "compilediag", *words, cwd=self.folder, timeout=120)
        assert done.returncode == code, done.stdout + done.stderr
        return " ".join((done.stdout + done.stderr).split())


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """The wheel, installed as a user would, and a receipt."""
    folder = tmp_path_factory.mktemp("package")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    pins = folder / "pins.txt"
    shutil.copy(ROOT / "constraints.txt", pins)
    subprocess.run([*pip, "-c", str(pins), str(wheel)], check=True, cwd=folder, timeout=240)
    environment = Environment(python, folder)
    shutil.copy(DATA / "receipt-example.json", folder / "run.json")
    yield environment
    shutil.rmtree(folder, ignore_errors=True)


def test_torch_is_not_installed_with_it(clean: Environment) -> None:
    """What has torch already keeps its own; what only reads receipts needs none."""
    command = [str(clean.python), "-c", "import torch"]
    found = subprocess.run(command, capture_output=True, check=False)
    assert found.returncode == 1
    assert b"No module named 'torch'" in found.stderr


def test_it_is_small(clean: Environment) -> None:
    """Bytecode is left out: it is written when something runs."""
    parts = [clean.python.parent, *(clean.folder / "venv" / "lib").glob("*/site-packages")]
    files = [path for part in parts for path in part.rglob("*") if path.is_file()]
    own = [path for path in files if not {*path.parts} & {*OF_PIP, "__pycache__"}]
    found = sum(path.stat().st_size for path in own if not path.is_symlink()) / 2**20
    assert found < MAX_MIB


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("show", "run.json"), "3 recompiles in 12 steps"),
        (("diff", "run.json", "run.json"), "nothing changed"),
        (("stats", "."), "1 receipt of 1 configuration"),
        (("trend", "."), "1 receipt of 1 configuration"),
        (("explain", "CD103"), "lazy-buffer"),
        (("explain", "1", "run.json"), "CD103"),
        (("plan", "run.json"), "no sizes that change"),
        (("gate", "run.json", "--any-code", "--fail-on", "recompiles>100"), "gate passed"),
        (("analyze", str(TRACE), "-o", "traced"), "recompile"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_reads_needs_no_torch(clean: Environment, words: tuple[str, ...], shown: str) -> None:
    """Each command does its work, and shows what it is about."""
    assert shown in clean.run(*words)


def test_pages_are_written_there(clean: Environment) -> None:
    """Templates, style and script are in the wheel."""
    assert "needs no network" in clean.run("show", "--html", "page.html", "run.json")
    page = (clean.folder / "page.html").read_text(encoding="utf-8")
    assert "uPlot" in page
    assert page.count("<script") == 2


def test_a_gate_fails_there_too(clean: Environment) -> None:
    """Its exit code is that of a limit that is broken."""
    assert "recompiles" in clean.run(
        "gate", "run.json", "--any-code", "--fail-on", "recompiles>0", code=3
    )


def test_run_explains_that_torch_is_missing(clean: Environment) -> None:
    """The target's own error comes first, and its exit code is kept."""
    (clean.folder / "train.py").write_text("import torch\n", encoding="utf-8")
    shown = clean.run("run", "-o", "failed", "train.py", code=1)
    assert "torch is not installed for" in shown
