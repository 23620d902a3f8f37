"""`due` inside compiled code: it answers, and torch compiles what it compiles without us."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import torch
import compilediag as cd

entropy = cd.cadence("entropy", every=3)

@torch.compile(backend="eager")
def forward(x, step):
    if entropy.due(step):
        return x.sin()
    return x.cos()

def broken(x, step):
    torch._dynamo.graph_break()
    return x + 1 if entropy.due(step) else x - 1

compiled = torch.compile(broken, backend="eager")
for step in range(7):
    forward(torch.ones(2), step)
    compiled(torch.ones(2), step)
"""


def oracle(program: Path, report: Path, **variables: str) -> dict[str, object]:
    """torch's own counts and rows of a plain run, with no session around it."""
    command = [
        sys.executable,
        str(Path(__file__).parents[1] / "support" / "oracle.py"),
        str(report),
        str(program),
    ]
    subprocess.run(command, env={**os.environ, **variables}, capture_output=True, check=True)
    return json.loads(report.read_text(encoding="utf-8"))


def test_counts_are_those_of_a_plain_run(tmp_path: Path) -> None:
    """Frames, compiles, recompiles and breaks under `run` are those torch counts without us, and
    `due` is never a frame of its own."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    plain = oracle(program, tmp_path / "report.json")
    done = subprocess.run(
        [sys.executable, "-m", "compilediag", "run", "--quiet", "--output", "out", "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    receipt = json.loads((tmp_path / "out/receipt.json").read_text())["compile"]
    counts = plain["counts"]
    assert isinstance(counts, dict)
    assert counts["recompiles"] > 0
    assert {name: receipt[name] for name in counts} == counts
    assert "due" not in {event["frame"]["function"] for event in receipt["events"]}
