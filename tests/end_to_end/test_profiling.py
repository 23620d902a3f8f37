"""Profiles on demand: a window between two signals, bounded, and nothing without being asked."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no SIGUSR1")


PROGRAM = """
import os, signal
import torch
model = torch.nn.Linear(4, 4)
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    compiled(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    if step == 4:
        print(signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL, flush=True)
        os.kill(os.getpid(), signal.SIGUSR1)
    if step == 7:
        os.kill(os.getpid(), signal.SIGUSR2)
"""


def observed(folder: Path, *, option: bool) -> tuple[int, str, dict[str, Any], Path]:
    """Exit code, output, receipt and directory of one run."""
    program, output = folder / "program.py", folder / "run"
    program.write_text(PROGRAM, encoding="utf-8")
    flags = ["--profile-on-signal"] if option else []
    command = [sys.executable, "-m", "compilediag", "run", "--quiet", "--no-live", *flags]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("COMPILEDIAG")}
    done = subprocess.run(
        [*command, "--output", str(output), "--", str(program)],
        cwd=folder,
        env=kept,
        capture_output=True,
        text=True,
        check=False,
    )
    receipt = json.loads((output / "receipt.json").read_text(encoding="utf-8"))
    return done.returncode, done.stdout, receipt, output


def test_a_profile_of_a_running_program(tmp_path: Path) -> None:
    """torch's own profiler, between the two signals: a trace beside the receipt, nothing compiled
    again, and the run as it would have been."""
    code, said, receipt, output = observed(tmp_path, option=True)
    assert (code, said) == (0, "False\n")
    (profile,) = receipt["profiles"]
    assert profile["problem"] is None
    assert 5 <= profile["first_step"] <= profile["last_step"] <= 9
    trace = json.loads(gzip.decompress((output / profile["uri"]).read_bytes()))
    names = {event.get("name") for event in trace["traceEvents"]}
    assert "aten::linear" in names
    (artifact,) = (item for item in receipt["artifacts"] if item["role"] == "torch_profile")
    assert (artifact["uri"], artifact["bytes"]) == (
        profile["uri"],
        os.path.getsize(output / profile["uri"]),
    )
    assert artifact["sha256"]
    counts = receipt["compile"]
    assert (counts["compiles"], counts["recompiles"], counts["graph_breaks"]) == (1, 0, 0)
    assert receipt["checks"]["evidence_complete"]


def test_without_the_option_the_signals_are_the_program_s(tmp_path: Path) -> None:
    """The action is the default one, and so is what a signal does: it ends the program."""
    code, said, receipt, _ = observed(tmp_path, option=False)
    assert (code, said) == (128 + signal.SIGUSR1, "True\n")
    assert (receipt["status"], receipt["profiles"]) == ("killed", [])
