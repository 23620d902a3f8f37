"""Edits of calls, followed literally: counted by a backend of its own."""

import pytest
import torch

pytest.importorskip("libcst")

from compilediag.fixes.edits.rewrite import rewrite
from compilediag.rules.changes import Edit
from tests.support.edited_program import run_program

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
    results, after, _ = run_program(rewrite(program, [Edit("", line, "argument", code)]))
    assert before > after == 1
    assert all(map(torch.equal, expected, results))
