"""`run --trace-writes`: the line that was seen, the same compiles as without, what is refused."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import captured, compilediag

pytestmark = pytest.mark.usefixtures("forked")

SCENARIO = Path(__file__).parents[2] / "scenarios" / "closure_flag" / "broken.py"
COUNTS = ("frames", "compiles", "recompiles", "graphs", "graph_breaks", "eager_fallbacks")


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return compilediag("run", *words, cwd=folder)


def receipt(folder: Path) -> dict[str, Any]:
    text = (folder / ".compilediag/latest/receipt.json").read_text(encoding="utf-8")
    return json.loads(text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a plain run of the scenario."""
    folder = tmp_path_factory.mktemp("witness")
    shutil.copy(SCENARIO, folder / "train.py")
    assert run(folder, "--quiet", "train.py").returncode == 0
    return folder


def line_with(text: str) -> int:
    lines = SCENARIO.read_text(encoding="utf-8").splitlines()
    return next(at for at, line in enumerate(lines, 1) if line.strip() == text)


@pytest.mark.usefixtures("own_interpreter")
def test_the_last_run_is_made_once_more_and_the_line_is_seen(folder: Path) -> None:
    """What torch counts, what the program prints and its exit code are those of the run before."""
    before = receipt(folder)
    plain = captured(sys.executable, "train.py", cwd=folder, check=True)
    done = run(folder, "--trace-writes")
    after = receipt(folder)
    assert (done.returncode, done.stdout) == (0, plain.stdout)
    assert after["receipt_id"] != before["receipt_id"]
    assert [after["compile"][name] for name in COUNTS] == [
        before["compile"][name] for name in COUNTS
    ]
    assert after["completeness"]["sources"]["metrics"] is True
    assert after["completeness"]["sources"]["agree"] is True
    assert after["completeness"]["numbers"] == before["completeness"]["numbers"]
    assert (before["witness"], before["findings"][0]["changed_at"]) == (None, None)
    line, caller = line_with("capture = value"), line_with("set_capture(step % 2 == 1)")
    [cause] = after["compile"]["events"][1]["causes"]
    assert [(each["line"], each["evidence"]) for each in cause["writers"]] == [(line, "witnessed")]
    changed = after["findings"][0]["changed_at"]
    assert changed == cause["changed_at"]
    assert (changed["file"], changed["line"]) == ("train.py", line)
    assert (changed["old"], changed["new"]) == ("False", "True")
    assert [each["line"] for each in changed["stack"]] == [line, caller]
    assert f"changed by set_capture, train.py:{line}, called from train.py:{caller} (seen)" in (
        done.stderr
    )
    assert after["witness"]["stopped"] is None
    assert f"write tracing: {after['witness']['line_events']} lines followed" in done.stderr


def test_a_program_that_has_changed_since_is_followed_in_all_steps(folder, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True, symlinks=True)
    with (tmp_path / "train.py").open("a") as file:
        file.write("\n")
    done = run(tmp_path, "--trace-writes")
    assert "train.py has changed since: every step is followed" in done.stderr
    assert "(seen)" in done.stderr


PLAIN = "import torch; torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2))"


@pytest.mark.parametrize(
    ("before", "message"),
    [
        (None, "there is no run to repeat here"),
        (("x.py",), "recorded no recompile: no writes to trace"),
        (("x.py", "--api-key", "sk-abcdefghijklmnopqrstuvwxyz0123456789"), "a secret in it was"),
    ],
    ids=["no run", "no writes", "redacted"],
)
def test_what_cannot_be_repeated(before, message: str, tmp_path: Path) -> None:
    """One sentence, and nothing is started."""
    if before is not None:
        (tmp_path / "x.py").write_text(PLAIN)
        assert run(tmp_path, "--quiet", *before).returncode == 0
    done = run(tmp_path, "--trace-writes")
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    runs = list(tmp_path.glob(".compilediag/2*"))
    assert len(runs) == (before is not None)
