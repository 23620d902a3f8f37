"""Text files that a program writes are lines of a recorded run, redirected or not."""

import dataclasses
import json
import os
import shutil
import sys
import textwrap
from pathlib import Path

import pytest
from command_line import captured

from compilediag.readers.journal import read_run
from compilediag.runs.supervised.child import make_child_environment
from compilediag.timeline.timeline import fold
from compilediag_harness.trials import program_output
from compilediag_harness.wire import RecordingPlan, TrialPlan, WriteProtection

PROGRAM = textwrap.dedent("""
    import csv, json, logging, os, pickle, sys, time
    import torch
    with open("metrics.json", "w") as file:
        json.dump({"loss": float(sys.argv[1])}, file, indent=1)
    logging.basicConfig(filename="train.log", format="%(message)s", level=logging.INFO)
    logging.info("added")
    os.makedirs("out/.cache")
    with open("out/part.tmp", "w", newline="") as file:
        csv.writer(file).writerows([[1, 2.5], [3, "x"]])
    os.replace("out/part.tmp", f"out/rows.{time.time_ns()}.csv")
    for name in ("gone.txt", "out/.cache/hidden"):
        with open(name, "w") as file:
            file.write("x")
    os.remove("gone.txt")
    with open("state.pkl", "wb") as file:
        pickle.dump([0, 1.5], file, protocol=4)
    open("data.txt").read()
    if os.fork() == 0:
        sys.exit(0)
    os.wait()
""")


def run(folder: Path, loss: str, protection: WriteProtection | None) -> dict[str, list[str]]:
    recording = RecordingPlan(seed=1)
    plan = TrialPlan(recording=recording, protection=protection)
    shutil.rmtree(folder.parent / "run", ignore_errors=True)
    (folder.parent / "run").mkdir()
    (folder.parent / "plan.json").write_text(json.dumps(dataclasses.asdict(plan)))
    env = make_child_environment(dict(os.environ), str(folder.parent / "run"))
    env["COMPILEDIAG_TRIAL"] = str(folder.parent / "plan.json")
    done = captured(sys.executable, "main.py", loss, cwd=folder, env=env, timeout=300)
    assert done.returncode == 0, done.stderr
    lines: dict[str, list[str]] = {}
    for record in fold([one.events for one in read_run(str(folder.parent / "run"))]).printed:
        lines.setdefault(record.stream, []).extend(record.lines)
    return lines


def test_the_text_of_files_is_recorded(tmp_path: Path) -> None:
    folder = tmp_path / "program"
    folder.mkdir()
    for name, text in (("main.py", PROGRAM), ("train.log", "old\n"), ("data.txt", "data\n")):
        (folder / name).write_text(text)
    protection = WriteProtection(str(tmp_path / "trial"), (str(folder),), (str(tmp_path),))
    redirected = run(folder, "0.5", protection)
    assert (folder / "train.log").read_text() == "old\n"
    assert not (folder / "out").exists()
    assert redirected == {
        "file metrics.json": ["{", ' "loss": 0.5', "}"],
        "file train.log": ["added"],
        "file out/rows.#.csv": ["1,2.5", "3,x"],
        "file state.pkl": ["no text: not compared"],
    }
    other = run(folder, "0.75", None)
    assert other.pop("file metrics.json")[1] == ' "loss": 0.75'
    del redirected["file metrics.json"]
    assert other == redirected


def test_what_is_too_much_is_one_line_with_a_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_output, "MAX_LINES", 3)
    monkeypatch.setattr(program_output, "MAX_CHARS", 12)
    ends: list[str] = []
    for last in ("5", "6"):
        (tmp_path / "log").write_text(f"1\n2\n3\n4\n444444\n{last}\n")
        lines = program_output._read_lines(str(tmp_path / "log"), 2)  # pyright: ignore[reportPrivateUsage]
        assert lines[:-1] == ["2", "3", "4"]
        ends.append(lines[-1])
    assert ends[0] != ends[1]
