"""Edits of state, made in the text and run: torch compiles once, and the program computes the same.

What is counted is what torch hands to a backend, and its own count of graph breaks.
"""

import pytest
import torch

from compilediag.fixes.edits.rewrite import rewrite
from compilediag.rules.changes import Edit
from tests.support.edited_program import run_program

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


def line_of(text: str, wanted: str) -> int:
    return next(at for at, line in enumerate(text.splitlines(), 1) if wanted in line)


@pytest.mark.parametrize(
    ("program", "at", "code"),
    [
        (COUNTED, "self.calls += 1", ("calls", "int64")),
        (WEIGHT, "return x.sum() * WEIGHT", ("WEIGHT", "float64")),
    ],
)
def test_nothing_is_compiled_again(program: str, at: str, code: tuple[str, ...]) -> None:
    text = HEAD + program
    before, compiled_before, breaks_before = run_program(text)
    edit = Edit("", line_of(text, at), "number_as_tensor", code)
    after, compiled, breaks = run_program(rewrite(text, [edit]))
    assert compiled_before > 1
    assert (compiled, breaks) == (1, breaks_before)
    torch.testing.assert_close(
        [torch.as_tensor(each) for each in after],
        [torch.as_tensor(each) for each in before],
        check_dtype=False,
    )
