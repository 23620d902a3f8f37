"""compilediag itself is killed: what the run recorded becomes a receipt that claims no more."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from command_line import compilediag

from compilediag.cli import main
from compilediag.receipt.file import read_receipt

PROGRAM = """\
import pathlib, time
import torch

compiled = torch.compile(lambda x: x + 1, backend="eager")
for _ in range(3):
    compiled(torch.ones(3))
pathlib.Path("compiled").touch()
while not pathlib.Path("end").exists():
    time.sleep(0.05)
"""


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 300
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not come"
        time.sleep(0.05)


def test_analyze_makes_the_receipt(tmp_path: Path) -> None:
    """While the program goes on its record is partial, and no tick is shown; once it has ended
    well, the receipt is whole. The lane is that of the run."""
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "compilediag", "run", "--no-live", "train.py"]
    run = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    wait_for(tmp_path / "compiled")
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    (folder,) = (tmp_path / ".compilediag").glob("*-train-*")
    assert not (folder / "receipt.json").exists()

    assert main(["analyze", str(folder), "--output", str(tmp_path / "first")]) == 0
    first = read_receipt(tmp_path / "first")
    assert (first.status, first.header.configuration.name) == ("partial", "train")
    assert first.compile.compiles == 1
    assert first.failure is not None
    assert "killed, or it still goes on" in str(first.failure.reason)

    (tmp_path / "end").touch()
    journal = next(folder.glob("journal-*"))
    deadline = time.monotonic() + 300
    while b'"ProcessEnded"' not in journal.read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert main(["analyze", str(folder), "--output", str(tmp_path / "second")]) == 0
    second = read_receipt(tmp_path / "second")
    assert (second.status, second.verdict) == ("complete", "clean")


def test_a_run_that_failed_is_not_analyzed_as_complete(tmp_path: Path) -> None:
    """The exception that ended the process is in its journal."""
    (tmp_path / "train.py").write_text("import torch\nraise ValueError('no')\n", encoding="utf-8")
    output = tmp_path / "out"
    compilediag("run", "--quiet", "--output", str(output), "train.py", cwd=tmp_path)
    assert main(["analyze", str(output), "--output", str(tmp_path / "again")]) == 0
    made = read_receipt(tmp_path / "again")
    assert made.status == "failed"
    assert made.failure.reason == "ValueError: no"
