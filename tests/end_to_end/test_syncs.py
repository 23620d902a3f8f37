"""Synchronisations against live torch: what is counted, and that nothing of torch notices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sync_pieces import observed, warm_up

torch = pytest.importorskip("torch")

from compilediag_harness.collectors import tensor_reads  # noqa: E402
from compilediag_harness.steps import steps  # noqa: E402
from compilediag_harness.wire import SyncsSampled  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore")]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_in_a_sampled_step_is_clean() -> None:
    """The child, such as a loader's worker, has torch's own class; the parent goes on sampling."""
    value = torch.rand(())
    with observed() as events:
        warm_up()
        child = os.fork()
        if child == 0:
            os._exit(len(tensor_reads.names_of(torch.Tensor)))
        _, status = os.waitpid(child, 0)
        value.item()
        steps.step()
    assert os.waitstatus_to_exitcode(status) == 0
    assert [event.counts for event in events if isinstance(event, SyncsSampled)] == [(1,)]


DISTURBING = """
import json, sys, torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.overrides import TorchFunctionMode

class Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))

class Function(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))

graphs = []
def backend(graph, inputs):
    graphs.append(graph)
    return graph.forward

def counted(first, second):
    torch._dynamo.reset()
    graphs.clear()
    double = torch.compile(lambda x: x * 2, backend=backend)
    for mode in (first, second, first):
        if mode is None:
            double(torch.rand(4))
        else:
            with mode():
                double(torch.rand(4))
    return len(graphs)

print(json.dumps([counted(None, None), counted(Dispatch, None), counted(None, Function)]))
"""


def test_modes_change_what_is_compiled() -> None:
    """The trap: why reads are not seen by a mode. Active at the first call a dispatch mode makes
    Dynamo skip the frame for good; a function mode makes it compile again. Which of the two
    disturbs differs: 2.7.1 compiles under a function mode, 2.15 under a dispatch mode."""
    done = subprocess.run(
        [sys.executable, "-c", DISTURBING], capture_output=True, text=True, timeout=240, check=True
    )
    plain, dispatch, function = json.loads(done.stdout.splitlines()[-1])
    assert plain == 1
    if torch.__version__.startswith("2.13."):
        assert (dispatch, function) == (0, 2)


PROGRAM = '''"""Reads in every step, a break, a disabled metric, a new size in a sampled step."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 8)
optimizer = torch.optim.Adam(model.parameters())

@torch.compiler.disable
def metric(x):
    return x.detach().sum().item()

@torch.compile(backend="eager")
def forward(batch):
    hidden = model(batch)
    metric(hidden)
    return hidden * 2

@torch.compile(backend="eager")
def broken(x):
    return x * x.max().item()

total = 0.0
for step in range(14):
    rows = 4 if step < 8 else 6
    loss = forward(torch.randn(rows, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    for value in broken(torch.rand(rows)):
        total += value.item()
        if value > 0.5:
            total += float(value)
print(f"{total:.9f}")
'''


def test_counts_of_a_sampled_run_are_torchs_own(tmp_path: Path) -> None:
    """The program prints the same, and torch counts the same, with and without us, where reads are
    in every step and something compiles in a sampled one."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COMPILEDIAG")}
    oracle, report = (Path(__file__).parents[1] / "support" / "oracle.py"), tmp_path / "report.json"
    plain = [sys.executable, str(oracle), str(report), str(program)]
    command = [sys.executable, "-m", "compilediag", "run", "--quiet", "--no-live"]
    watched = [*command, "--output", str(tmp_path / "out"), "--", str(program)]
    printed: list[str] = []
    for arguments in (plain, watched):
        done = subprocess.run(
            arguments, env=environment, capture_output=True, text=True, timeout=240, check=True
        )
        printed.append(done.stdout)
    (path,) = (tmp_path / "out").rglob("receipt.json")
    receipt = json.loads(path.read_text(encoding="utf-8"))
    counts = json.loads(report.read_text(encoding="utf-8"))["counts"]
    assert printed[0] == printed[1]
    assert {key: receipt["compile"][key] for key in counts} == counts
    assert receipt["syncs"]["sampled_steps"] >= 3
    assert {line["kind"] for line in receipt["syncs"]["lines"]} == {"item", "bool", "float"}
