"""`run --depyf`: what frames became, from a second run; the measured run and its verdict stay."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from depyf_program import run_depyf, second


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, str, str]:
    return run_depyf(tmp_path_factory.mktemp("depyf"))


def test_the_measured_run_is_the_only_one_that_is_seen(run: tuple[Path, Any, str, str]) -> None:
    """The program ran twice; its output, its journals and the counts are those of one run."""
    folder, receipt, stdout, _ = run
    assert (folder / "ran").read_text(encoding="utf-8") == "once once "
    assert stdout == "runs 2\nruns 3\n"
    assert receipt["status"] == "complete"
    assert len([item for item in receipt["artifacts"] if item["role"] == "journal"]) == 1
    counts = receipt["compile"]
    assert (counts["recompiles"], counts["graph_breaks"]) == (1, 1)


# --- a second run that is no torch program ---------------------------------------------------


def noting(**told: object) -> str:
    """Code of a program that leaves one note."""
    line = json.dumps(told)
    place = "os.path.join(os.environ['COMPILEDIAG_DEPYF_DIR'], '1.jsonl')"
    return f"open({place}, 'w').write({line!r} + chr(10))"


NOTE = {
    "compile_id": "0/0",
    "function": "f",
    "line": 1,
    "after": ["x = 1", "depyf"],
    "before": None,
}


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("os._exit(3)", "exit code 3"),
        ("os.kill(os.getpid(), 9)", "signal 9"),
        ("import signal; signal.pause()", "longer than 0.3 s"),
        ("pass", "compiled nothing"),
    ],
)
def test_a_second_run_that_fails_costs_the_files_alone(
    code: str, said: str, tmp_path: Path
) -> None:
    """Exit code, signal, hang, nothing compiled: one sentence, and no file."""
    made = second(tmp_path, code, 0.3 if "pause" in code else 60.0)
    assert made.files == ()
    assert said in (made.problem or "")


def test_it_ends_when_it_is_stopped(tmp_path: Path) -> None:
    """A second Ctrl-C ends the second run, whatever it does."""
    made = second(tmp_path, "import signal; signal.pause()", stopped=lambda: True)
    assert "it was stopped" in (made.problem or "")


def test_it_saves_its_work_when_it_is_interrupted(tmp_path: Path) -> None:
    """One Ctrl-C reaches it once, and it takes the time it needs."""
    done, ready = tmp_path / "done", tmp_path / "ready"
    code = f"""
import time
try:
    open({str(ready)!r}, "w")
    while True: time.sleep(0.01)
except KeyboardInterrupt:
    time.sleep(1)
    open({str(done)!r}, "w")
"""
    sent: list[bool] = []

    def stopped() -> bool:
        if sent or not ready.exists():
            return False
        sent.append(True)
        return True

    made = second(tmp_path, code, stopped=stopped)
    assert "it was stopped" in (made.problem or "")
    assert done.exists()


def test_notes_of_a_run_that_died_are_kept(tmp_path: Path) -> None:
    """What was noted before the end is written, and the end is told."""
    made = second(tmp_path, f"{noting(**NOTE)}\nos._exit(1)")
    assert [os.path.basename(path) for path in made.files] == ["0-0-f.py"]
    assert "exit code 1" in (made.problem or "")


def test_names_and_secrets_of_a_note_do_nothing(tmp_path: Path) -> None:
    """A function named like a path becomes a word, an id that is none is left out, known secrets
    and bytecode are comments or gone."""
    evil = {**NOTE, "function": "../../x", "after": ["LOAD hunter2hunter2\n  \x1b", "dis"]}
    made = second(tmp_path, noting(**evil), known=("hunter2hunter2",))
    assert [os.path.basename(path) for path in made.files] == ["0-0-_x.py"]
    text = Path(made.files[0]).read_text(encoding="utf-8")
    assert "hunter2" not in text
    assert "as bytecode: depyf could not decompile it\n# LOAD" in text
    other = tmp_path / "other"
    other.mkdir()
    assert second(other, noting(**{**NOTE, "compile_id": "../0"})).files == ()
