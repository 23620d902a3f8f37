"""Calls of compiled callables: how often in a step, with which shapes, and what work that was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")


pytestmark = pytest.mark.usefixtures("fresh_dynamo")


# --- calls ---


PROGRAM = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
    def forward(self, x, mask=None, extra=()):
        return self.layer(x).sum() + sum(item.sum() for item in extra)
class Mine(torch.Tensor):
    pass
torch.manual_seed(0)
net = Net()
compiled = torch.compile(net, backend="eager")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(6):
    x = torch.ones(2 + step % 3, 4)
    loss = compiled(x, mask=torch.ones(2), extra=[torch.ones(step % 2 + 1)])
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        compiled(x.as_subclass(Mine))
        compiled(torch.nested.nested_tensor([torch.ones(4)]).to_padded_tensor(0.0))
print(loss.item())
"""


def test_torch_counts_the_same_with_it(tmp_path: Path) -> None:
    """Compiles, recompiles, graphs and breaks of a plain run, told by torch itself; same result."""
    program, report = tmp_path / "program.py", tmp_path / "report.json"
    program.write_text(PROGRAM, encoding="utf-8")
    names = ("TORCH_LOGS", "TORCH_TRACE", "COMPILEDIAG")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(names)}
    oracle = [
        sys.executable,
        str(Path(__file__).parents[1] / "support" / "oracle.py"),
        str(report),
        str(program),
    ]
    ours = [sys.executable, "-m", "compilediag", "run", "--quiet", "--no-live", "--output"]
    output = tmp_path / "run"
    alone, seen = (
        subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        for command in (oracle, [*ours, str(output), "--", str(program)])
    )
    counted = json.loads(report.read_text(encoding="utf-8"))["counts"]
    receipt = json.loads((output / "receipt.json").read_text(encoding="utf-8"))
    assert {name: receipt["compile"][name] for name in counted} == counted
    assert counted["recompiles"] > 0
    assert alone.stdout == seen.stdout
    (net,) = receipt["invocations"]
    assert (net["name"], net["calls"], net["per_step"]["max"]) == ("Net.forward", 18, 3)
