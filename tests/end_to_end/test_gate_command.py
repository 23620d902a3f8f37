"""`compilediag gate` as a command: what it reads, what it writes, how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import enter_plain_repository
from gate_lanes import lane

from compilediag.cli import main
from compilediag.compare.gate.baseline import Baseline, read, text_of

pytestmark = pytest.mark.usefixtures("forked")

PYTHON = sys.executable
"""An interpreter that starts without torch."""

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def plain_repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    enter_plain_repository(monkeypatch, tmp_path)


def gate(*arguments: str) -> int:
    return main(["gate", *arguments])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both programs of a scenario, run as one lane."""
    folder = tmp_path_factory.mktemp("three_bugs")
    for name in ("broken", "fixed"):
        source = (ROOT / "scenarios" / "three_bugs" / f"{name}.py").read_text(encoding="utf-8")
        (folder / name).mkdir()
        (folder / name / "train.py").write_text(source, encoding="utf-8")
        arguments = ["--quiet", "--output", "run", "train.py", "--backend", "eager"]
        subprocess.run(
            [sys.executable, "-m", "compilediag", "run", *arguments],
            cwd=folder / name,
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return folder


def test_three_bugs_from_nothing_to_red_and_green(runs: Path, capsys: Any) -> None:
    """Known bugs pass; mending them is better; coming back they fail, each with its line. The
    receipts are of code that lies elsewhere."""
    broken, fixed = str(runs / "broken" / "run"), str(runs / "fixed" / "run")
    assert gate("--any-code", broken, "--update", "--reason", "to be mended") == 0
    assert gate("--any-code", broken) == 0

    capsys.readouterr()
    assert gate("--any-code", fixed, "--format", "json") == 3
    (printed,) = json.loads(capsys.readouterr().out)["judgements"]
    assert {item["variable"] for item in printed["improvements"] if item["kind"] == "cause"} == {
        "position.table",
        "capture",
        "stash",
        "capture, stash",
    }
    # The mended program has one graph break at each disabled hook: printed, and to be allowed.
    assert {item["kind"] for item in printed["failures"]} == {"break"}

    assert gate("--any-code", fixed, "--update", "--reason", "hooks run outside the graph") == 0
    assert gate("--any-code", fixed) == 0
    capsys.readouterr()
    assert gate("--any-code", broken, "--format", "json") == 3
    (printed,) = json.loads(capsys.readouterr().out)["judgements"]
    assert {(item["kind"], item["rule"], item["variable"]) for item in printed["failures"]} == {
        ("cause", "CD103", "position.table"),
        ("cause", "CD101", "capture"),
        ("cause", "CD102", "stash"),
        ("cause", "CD120", "capture, stash"),
    }
    assert all(item["file"] == "train.py" and item["line"] for item in printed["failures"])
    assert gate("--any-code", fixed, "--lane", "other") == 2


def test_the_gate_imports_no_torch(runs: Path) -> None:
    """Judging, also into files, and recording are done without torch, numpy or scipy."""
    heavy = ("torch", "numpy", "scipy")
    probe = (
        "import sys\nfrom compilediag.cli import main\n"
        "code = main(sys.argv[1:])\n"
        f"print(code, sorted(set({heavy!r}) & set(sys.modules)))\n"
    )
    run = ["gate", "--any-code", str(runs / "broken" / "run")]
    for arguments in (
        ["--update", "--reason", "x"],
        ["--format", "sarif=s", "--format", "junit=j", "--format", "gitlab=g"],
    ):
        command = [PYTHON, "-c", probe, *run, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "0 []"


def test_git_merges_two_branches(tmp_path: Path) -> None:
    """One branch allows a cause of one lane, the other one of another: no conflict."""
    base = Baseline((lane("a", "k", "z"), lane("b", "k", "z")))
    ours = base.with_lanes([lane("a", "k", "n", "z")])
    theirs = base.with_lanes([lane("b", "k", "m", "z")])
    files = [tmp_path / name for name in ("ours", "base", "theirs")]
    for file, lock in zip(files, (ours, base, theirs), strict=True):
        file.write_text(text_of(lock), encoding="utf-8")
    subprocess.run(["git", "merge-file", *map(str, files)], check=True)
    merged = read(files[0].read_text(encoding="utf-8"))
    assert merged == Baseline((lane("a", "k", "n", "z"), lane("b", "k", "m", "z")))
