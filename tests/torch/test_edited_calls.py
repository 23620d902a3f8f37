"""Edits of what calls pass, followed literally: counted by a backend of the test's own."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("libcst")

from compilediag.fixes.codemods.edit import Edit, edited  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore")]

LAYOUTS = """\
import torch as t
class Blur(t.nn.Module):
    def forward(self, images, *, bias=None):
        return images * 2 + (0 if bias is None else bias)
model = t.compile(Blur(), backend=backend, dynamic=False)
one = t.arange(96.0).reshape(1, 3, 4, 8)
for each in (one, one.to(memory_format=t.channels_last), one.transpose(2, 3).contiguous().mT):
    out.append(model(one + 1, bias=each))
"""

ALIASES = """\
class Attention:
    def __call__(self, query, key):
        return query @ key.mT
attend = torch.compile(Attention().__call__, backend=backend, dynamic=False)
def step(query, key):
    return attend(query, key)
x, y = torch.ones(2, 2), torch.eye(2)
out += [step(x, y), step(x, x), step(query=y, key=x)]
"""

NUMBERS = """\
def decorated(function):
    return torch.compile(function, backend=backend, dynamic=False)
@decorated
def scaled(x, rate, power=2):
    return x.sin() * rate
out += [scaled(torch.ones(3), rate=n / 10) for n in range(1, 5)]
"""


@pytest.mark.parametrize(
    ("program", "line", "code", "compiles"),
    [
        (LAYOUTS, 8, ("model(one + 1, bias=each)", "1", "_.contiguous()"), 3),
        (ALIASES, 6, ("attend(query, key)", "1", "_.clone()"), 2),
        (
            NUMBERS,
            6,
            ("scaled(torch.ones(3), rate=n / 10)", "1", "torch.tensor(_, dtype=torch.float64)"),
            4,
        ),
    ],
)
def test_an_edited_program_compiles_once_and_computes_the_same(program, line, code, compiles):
    before, expected = run(program)
    after, results = run(edited(program, [Edit("", line, "argument", code)]))
    assert (before, after) == (compiles, 1)
    assert all(map(torch.equal, expected, results))


def run(program):
    """How many graphs a program compiles, and its results."""
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    found = {"backend": backend, "out": [], "torch": torch}
    exec(compile(program, "program.py", "exec"), found)
    return len(graphs), found["out"]
