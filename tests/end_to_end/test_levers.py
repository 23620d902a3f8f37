"""Settings that need no edit are typed as the screen prints them, and torch counts what is left."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import captured

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("forked")

PROGRAM = """
import json
import torch
from torch import nn
from torch._dynamo import utils

results = []
compiled = lambda function: torch.compile(function, backend="eager")

class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        return x.sum() / self.calls

class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Counter()
    def forward(self, y):
        return self.inner(y) + 1

class Layer(nn.Module):
    def __init__(self, index):
        super().__init__()
        self.index = index
    def forward(self, hidden):
        return hidden * (self.index + 2)

class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.ones(4, 2))
    def forward(self, x):
        return x.sum() * self.table.sum()

class Config:
    pass

class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 0.5
    def scaled_forward(self, x):
        return x.sum() * self.scale

POWER = 1

def global_int(x):
    return x.sum() * POWER

def int_argument(x, n):
    return x.sum() * n

def int_in_list(x, items):
    return x.sum() * items[0]

def int_of_object(x, config):
    return x.sum() * config.rows

def float_argument(x, factor):
    return x.sum() * factor

def bool_argument(x, flag):
    return x.sum() * 2 if flag else x.sum()

def size(rows):
    return rows.softmax(-1).sum()

def one_row(single):
    return single.softmax(-1).sum()

def capturing():
    count = 1
    def captured_int(x):
        return x.sum() * count
    def set_count(value):
        nonlocal count
        count = value
    return compiled(captured_int), set_count

def item(x):
    return (x * x.sum().item()).sum()

def nonzero(x):
    return torch.nonzero(x).sum() + 1

x = torch.ones(4)
counter, nested = Counter(), Nested()
for module in (counter, nested):
    call = compiled(module)
    for _ in range(4):
        results.append(call(x))
results += [counter.calls, nested.inner.calls]
hidden = x
for index in range(10):
    layer = Layer(index)
    layer.compile(backend="eager")
    hidden = layer(hidden)
results.append(hidden.sum())
scaled = Scaled()
call = compiled(scaled.scaled_forward)
for value in (0.5, 1.5, 2.5):
    scaled.scale = value
    results.append(call(x))
table = Table()
call = compiled(table)
for rows in (4, 6, 9, 12):
    table.table = torch.ones(rows, 2)
    results.append(call(x))
call = compiled(global_int)
for POWER in (2, 3, 4):
    results.append(call(x))
call, set_count = capturing()
for value in (2, 3, 4):
    set_count(value)
    results.append(call(x))
results += [compiled_call(x, n) for compiled_call in [compiled(int_argument)] for n in (2, 3, 5)]
results += [compiled_call(x, [n]) for compiled_call in [compiled(int_in_list)] for n in (2, 3, 5)]
call = compiled(int_of_object)
for value in (2, 3, 5):
    config = Config()
    config.rows = value
    results.append(call(x, config))
results += [call(x, n) for call in [compiled(float_argument)] for n in (2.5, 3.5, 4.5)]
results += [call(x, n) for call in [compiled(bool_argument)] for n in (True, False)]
results += [call(torch.ones(n, 3)) for call in [compiled(size)] for n in (2, 3, 5)]
results += [call(torch.ones(n, 3)) for call in [compiled(one_row)] for n in (4, 1, 3)]
results += [compiled(item)(x), compiled(nonzero)(x)]

rows = [row for row in utils.get_compilation_metrics() if row.is_forward is not False]
again = {}
for row in rows:
    if row.co_name and (row.recompile_reason or row.fail_type):
        again[row.co_name] = again.get(row.co_name, 0) + 1
print(json.dumps({
    "again": again,
    "breaks": sum(utils.counters["graph_break"].values()),
    "results": [float(result) for result in results],
}))
"""

WITHOUT_SETTING = {
    *("bool_argument", "one_row", "float_argument", "scaled_forward", "int_in_list"),
}
"""What no setting that is offered removes: a bool; the size 1, which torch never takes for dynamic;
and floats and items of lists, since a setting for these is one for every function."""


def run(command: str, folder: Path) -> str:
    done = captured("sh", "-c", command, cwd=folder, env={**os.environ, "COLUMNS": "100"})
    return done.stderr + done.stdout


def test_settings_typed_as_printed_remove_what_they_stand_under(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    plain = f"{sys.executable} program.py"
    before: dict[str, Any] = json.loads(run(plain, tmp_path).splitlines()[-1])
    screen = run(f"{sys.executable} -m compilediag run program.py", tmp_path)

    _, _, last = screen.partition(" without an edit:")
    exports = [line.strip() for line in last.splitlines() if line.strip().startswith("export ")]
    assert [re.split(r"[ =]", line)[1] for line in exports] == [
        "TORCH_COMPILE_DYNAMIC_SOURCES",
        "TORCHDYNAMO_CAPTURE_DYNAMIC_OUTPUT_SHAPE_OPS",
    ]
    after = json.loads(run("\n".join([*exports, plain]), tmp_path).splitlines()[-1])

    assert set(before["again"]) == {
        *("forward", "global_int", "int_argument", "int_of_object", "captured_int"),
        *("size", *WITHOUT_SETTING),
    }
    # What `.item()` reads may be needed as a number: no setting is printed for it.
    assert (set(after["again"]), after["breaks"]) == (WITHOUT_SETTING, 1)
    assert before["breaks"] == 2
    assert after["results"] == pytest.approx(before["results"])
