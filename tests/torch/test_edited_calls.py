"""Edits of calls and of the global state, followed literally: counted by a backend of its own."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("libcst")

from compilediag.fixes.codemods.edit import Edit, edited  # noqa: E402
from tests.support.edited_program import run_program  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore")]

LAYOUTS = """\
import torch as t
class Blur(t.nn.Module):
    def forward(self, images, *, bias=None):
        return images * 2 + (0 if bias is None else bias)
model = t.compile(Blur(), backend=backend, dynamic=False)
one = t.arange(96.0).reshape(1, 3, 4, 8)
for each in (one, one.to(memory_format=t.channels_last), one.transpose(2, 3).contiguous().mT):
    results.append(model(one + 1, bias=each))
"""

ALIASES = """\
class Attention:
    def __call__(self, query, key):
        return query @ key.mT
attend = torch.compile(Attention().__call__, backend=backend, dynamic=False)
def step(query, key):
    return attend(query, key)
x, y = torch.ones(2, 2), torch.eye(2)
results += [step(x, y), step(x, x), step(query=y, key=x)]
"""

NUMBERS = """\
def decorated(function):
    return torch.compile(function, backend=backend, dynamic=False)
@decorated
def scaled(x, rate, power=2):
    return x.sin() * rate
results += [scaled(torch.ones(3), rate=n / 10) for n in range(1, 5)]
"""

THREADS = """\\
import torch
step = torch.compile(lambda x: x * 2, backend=backend)
for number in range(3):
    results.append(step(torch.ones(2)))
    if number == 1:
        torch.set_num_threads(1)
"""

MODES = """\\
import torch
model = torch.nn.Linear(2, 2).requires_grad_(True)
torch.nn.init.ones_(model.weight), torch.nn.init.zeros_(model.bias)
class Server:
    def __init__(self):
        self.model = torch.compile(model, backend=backend)
    def warm(self, x):
        with torch.no_grad():
            return self.model(x)
server, x = Server(), torch.ones(2)
results.append(server.warm(x))
with torch.inference_mode():
    results.append(server.model(x))
"""


MADE_ANEW = """\
import torch
apply = torch.compile(lambda x, op: op(x) * 2, backend=backend)
for number in range(4):
    class Shift:
        def __call__(self, x):
            return x + 0.5
    op = Shift()
    results.append(apply(torch.ones(3) * number, op))
"""

LATE_HOOK = """\
import torch
model = torch.nn.Linear(2, 2)
torch.nn.init.ones_(model.weight), torch.nn.init.zeros_(model.bias)
high, low = torch.zeros(()), torch.zeros(())
def lowest(module, inputs, output):
    low.copy_(output.detach().min())
def highest(module, inputs, output):
    high.copy_(output.detach().max())
model.register_forward_hook(lowest)
call = torch.compile(torch.nn.Sequential(model), backend=backend)
for number in range(4):
    if number == 2:
        model.register_forward_hook(highest)
    results.append(call(torch.ones(2) * (number + 1)))
    results += [high.clone(), low.clone()]
"""

SOMETIMES = """\
import torch
def weighted(x, mask=None):
    if mask is not None:
        x = x * mask
    return x.sin()
call = torch.compile(weighted, backend=backend)
for number in range(4):
    mask = torch.full((3,), 0.5) if number % 2 else None
    results.append(call(torch.ones(3) * number, mask))
"""


@pytest.mark.parametrize(
    ("program", "edit"),
    [
        (MADE_ANEW, Edit("", 8, "hoisted", ("apply(torch.ones(3) * number, op)", "op"))),
        (LATE_HOOK, Edit("", 14, "registered_once")),
        (
            SOMETIMES,
            Edit(
                "",
                9,
                "neutral_argument",
                ("call(torch.ones(3) * number, mask)", "mask", "mask", "3", "torch.float32"),
            ),
        ),
    ],
)
def test_what_is_the_same_for_every_call_compiles_once_and_computes_the_same(program, edit):
    expected, before, _ = run_program(program)
    results, after, _ = run_program(edited(program, [edit]))
    assert before > after == 1
    assert all(map(torch.equal, expected, results))


@pytest.mark.parametrize(
    ("program", "line", "code"),
    [
        (LAYOUTS, 8, ("model(one + 1, bias=each)", "1", "_.contiguous()")),
        (ALIASES, 6, ("attend(query, key)", "1", "_.clone()")),
        (
            NUMBERS,
            6,
            ("scaled(torch.ones(3), rate=n / 10)", "1", "torch.tensor(_, dtype=torch.float64)"),
        ),
    ],
)
def test_an_edited_call_compiles_once_and_computes_the_same(program, line, code):
    expected, before, _ = run_program(program)
    results, after, _ = run_program(edited(program, [Edit("", line, "argument", code)]))
    assert before > after == 1
    assert all(map(torch.equal, expected, results))


@pytest.mark.parametrize(
    ("program", "edit"),
    [
        (THREADS, Edit("", 4, "set_first", ("torch.set_num_threads",))),
        (MODES, Edit("", 9, "mode", ("torch.no_grad", "torch.inference_mode"))),
        (MODES, Edit("", 13, "mode", ("torch.inference_mode", "torch.no_grad"))),
    ],
)
def test_one_global_state_compiles_once_and_computes_the_same(program, edit):
    threads = torch.get_num_threads()
    found = []
    try:
        for text in (program, edited(program, [edit])):
            torch.set_num_threads(2)
            found.append(run_program(text))
    finally:
        torch.set_num_threads(threads)
    (expected, before, _), (results, after, _) = found
    assert (before, after) == (2, 1)
    assert all(map(torch.equal, expected, results))
