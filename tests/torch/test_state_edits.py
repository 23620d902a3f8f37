"""Edits of state, made in the text and run: torch compiles once, and the program computes the same.

What is counted is what torch hands to a backend, and its own count of graph breaks.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from compilediag.fixes.codemods.edit import Edit, edited
from tests.support.edited_program import run_program

torch = pytest.importorskip("torch")
pytest.importorskip("libcst")


HEAD = """
import torch
from torch import nn

torch.manual_seed(0)
results = []
"""


COUNTED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.layer(x) / self.calls

net = Net()
call = torch.compile(net, backend=backend)
for _ in range(5):
    results.append(call(torch.randn(3, 4)))
results.append(net.calls)
"""

EVERY_OTHER = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.every, self.calls = nn.Linear(4, 4), 2, 0

    def forward(self, x):
        out = self.layer(x)
        if self.calls % self.every == 0:
            out = out + x.pow(2).mean()
        self.calls += 1
        return out * 2 if self.calls > 3 else out

net = Net()
call = torch.compile(net, backend=backend)
for _ in range(6):
    results.append(call(torch.randn(3, 4)))
results.append(net.calls)
"""

TABLE = """
class Diffusion(nn.Module):
    def __init__(self, count=10):
        super().__init__()
        self.net = nn.Linear(8, 8)
        self.betas = [0.01 * i for i in range(1, count + 1)]
        self.spans = [i * 2 for i in range(len(self.betas))]

    def forward(self, x, t):
        beta = self.betas[t]
        return x * (1 - beta) ** 0.5 + self.net(x) * beta + self.spans[t - 1]

net = Diffusion()
call = torch.compile(net, backend=backend)
x = torch.randn(4, 8)
with torch.no_grad():
    for t in range(9, 1, -1):
        x = call(x, t)
        results.append(x)
results.append(net.betas[3])
"""

GROWN = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", self.build(1), persistent=False)

    def build(self, length):
        return torch.arange(length) * 2.0

    def forward(self, x):
        if self.table.shape[0] < x.shape[0]:
            self.table = self.build(x.shape[0])
        return x + self.table[: x.shape[0]]

call = torch.compile(Net(), backend=backend)
for _ in range(3):
    results.append(call(torch.randn(6)))
"""

FLAG = """
def watch(layer):
    on = False
    latest = {"mean": torch.zeros(())}

    def record(module, args, output):
        if on:
            latest["mean"] = output.detach().mean()

    def switch(value):
        nonlocal on
        on = value

    layer.register_forward_hook(record)
    return latest, switch

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x).relu()

net = Net()
latest, switch = watch(net.layer)
call = torch.compile(net, backend=backend)
for step in range(5):
    switch(step % 2 == 1)
    results.append(call(torch.randn(3, 4)))
    results.append(latest["mean"].item())
"""

WEIGHT = """
WEIGHT = 0.5

def scaled(x):
    return x.sum() * WEIGHT

call = torch.compile(scaled, backend=backend)
for step in range(4):
    results.append(call(torch.randn(3)))
    WEIGHT = WEIGHT * 0.5
results.append(WEIGHT)
"""

RATE = """
weight = nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([weight], lr=0.5)

def update():
    optimizer.step()

call = torch.compile(update, backend=backend)
for step in range(4):
    weight.grad = torch.ones(3)
    optimizer.param_groups[0]["lr"] *= 0.5
    call()
    results.append(weight.detach().clone())
results.append(optimizer.param_groups[0]["lr"])
"""


def line_of(text: str, wanted: str) -> int:
    return next(at for at, line in enumerate(text.splitlines(), 1) if wanted in line)


def run_alone(text: str) -> tuple[list[Any], int, int]:
    """The same in a process of its own: an optimizer that stays alive makes the steps of other
    tests."""
    program = f"""
import json
from torch._dynamo.testing import CompileCounter
from torch._dynamo.utils import counters
backend = CompileCounter()
{text}
numbers = [torch.as_tensor(each).tolist() for each in results]
print(json.dumps([numbers, backend.frame_count, sum(counters["graph_break"].values())]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return tuple(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("program", "at", "kind", "code"),
    [
        (COUNTED, "self.calls += 1", "number_as_tensor", ("calls", "int64")),
        (EVERY_OTHER, "if self.calls %", "number_as_tensor", ("calls", "int64")),
        (WEIGHT, "return x.sum() * WEIGHT", "number_as_tensor", ("WEIGHT", "float64")),
        (GROWN, "if self.table", "largest_in_init", ("table", "6")),
        (FLAG, "if on:", "flag_as_tensor", ("on", "bool")),
        (RATE, "optimizer.step()", "rate_as_tensor", ()),
    ],
)
def test_nothing_is_compiled_again(program: str, at: str, kind: str, code: tuple[str, ...]) -> None:
    text = HEAD + program
    runs = run_alone if kind == "rate_as_tensor" else run_program
    before, compiled_before, breaks_before = runs(text)
    after, compiled, breaks = runs(edited(text, [Edit("", line_of(text, at), kind, code)]))
    assert compiled_before > 1
    assert (compiled, breaks) == (1, breaks_before)
    torch.testing.assert_close(
        [torch.as_tensor(each) for each in after],
        [torch.as_tensor(each) for each in before],
        check_dtype=False,
    )


@pytest.mark.parametrize("at", ["beta = self.betas[t]", "return x * (1 - beta)"])
def test_tables_are_compiled_again_once(at: str) -> None:
    """The number that indexes them is dynamic then."""
    text = HEAD + TABLE
    before, compiled_before, _ = run_program(text)
    new = edited(text, [Edit("", line_of(text, at), "tables_as_tensors")])
    after, compiled, breaks = run_program(new)
    assert (compiled_before, compiled, breaks) == (8, 2, 0)
    torch.testing.assert_close(
        [torch.as_tensor(each) for each in after],
        [torch.as_tensor(each) for each in before],
        check_dtype=False,
    )
