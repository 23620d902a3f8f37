"""A flag that compiled code branches on, as a tensor: the exact text, and where it is refused."""

from __future__ import annotations

import pytest

from compilediag.fixes.codemods.edit import Edit, EditImpossible, edited

pytest.importorskip("libcst")

HOOK = """\
import torch


def watch(layer):
    capture = False
    latest = {"mean": torch.zeros(())}

    def record(module, inputs, output):
        # for the log
        if capture:
            latest["mean"] = output.detach().mean()  # one number

    def set_capture(value):
        nonlocal capture
        capture = value

    layer.register_forward_hook(record)
    return latest, set_capture
"""

MODULE = """\
import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.on = False

    def forward(self, x, y):
        if self.on:
            BODY
        return x
"""


def as_tensor(text: str, line: int, name: str) -> str:
    return edited(text, [Edit("", line, "flag_as_tensor", (name, "bool"))])


def chosen(body: str) -> str:
    """What stands in place of the branch."""
    text = as_tensor(MODULE.replace("BODY", body), 11, "on")
    made = 'self.register_buffer("on", torch.zeros((), dtype=torch.bool), persistent=False)'
    assert made in text
    below = text.partition("x, y):\n")[2].splitlines()
    return "; ".join(line.strip() for line in below)


def test_a_flag_of_a_closure() -> None:
    wanted = (
        HOOK.replace("capture = False", "capture = torch.zeros((), dtype=torch.bool)")
        .replace("        nonlocal capture\n", "")
        .replace("capture = value", "capture.fill_(value)")
        .replace(
            "        if capture:\n            latest",
            "        latest",
        )
        .replace(
            "= output.detach().mean()",
            '= torch.where(capture, output.detach().mean(), latest["mean"])',
        )
    )
    assert as_tensor(HOOK, 10, "capture") == wanted


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("x = x * 2", "x = torch.where(self.on, x * 2, x); return x"),
        (
            "y.copy_(x.detach().sum())",
            "y.copy_(torch.where(self.on, x.detach().sum(), y)); return x",
        ),
        (
            "twice = x * 2\n            x = twice + 1",
            "twice = x * 2; x = torch.where(self.on, twice + 1, x); return x",
        ),
        (
            "x = x * 2\n        else:\n            x = torch.relu(y)",
            "x = torch.where(self.on, x * 2, torch.relu(y)); return x",
        ),
        (
            "return x\n        else:\n            return -y",
            "return torch.where(self.on, x, -y); return x",
        ),
    ],
)
def test_a_branch_becomes_a_choice(body: str, wanted: str) -> None:
    assert chosen(body) == wanted


def test_a_negated_flag_and_an_expression() -> None:
    negated = MODULE.replace("if self.on:\n            BODY", "if not self.on:\n            x = -x")
    assert "x = torch.where(self.on, x, -x)" in as_tensor(negated, 11, "on")
    ternary = MODULE.replace("if self.on:\n            BODY", "x = x.sin() if self.on else y")
    assert "x = torch.where(self.on, x.sin(), y)" in as_tensor(ternary, 11, "on")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("x += 1", "not known to be harmless"),
        ("print(x)", "not known to be harmless"),
        ("x.add_(1)", "not known to be harmless"),
        ("z = x * 2\n        z = x\n        x = z", "may have no value"),
        ("x = self.drop(x)", "may do more"),
        ("x = torch.rand(3)", "may do more"),
        ("x = torch.log(x)", "may do more"),
        ("x = x / y", "may do more"),
        ("x = None", "is not a tensor"),
        ("y.copy_(x.sum())", "kept with its gradient"),
        ("self.last = x.detach()", "may not be there"),
        ('y["a"] = x.detach()', "may not be there"),
        ("for _ in x: pass", "is more than assignments"),
        ("if y: x = -x", "is more than assignments"),
        ("return -x", "not known to be harmless"),
        ("x = -x\n        elif y:\n            x = x", "several conditions"),
        ("x = -x\n        else:\n            y = x", "more than one value"),
        ("x = -x; y = x", "is more than assignments"),
    ],
)
def test_a_branch_that_is_not_evidently_a_choice(body: str, why: str) -> None:
    with pytest.raises(EditImpossible, match=why):
        chosen(body)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("if self.on:", "if self.on and y:", "more than a branch of its own"),
        ("if self.on:", "while self.on:", "more than a branch of its own"),
        ("self.on = False", "self.on = 0", "neither True nor False"),
        ("self.on = False", "self.on = off = made()", "does not set|more than one|together"),
    ],
)
def test_what_is_no_plain_flag(before: str, after: str, why: str) -> None:
    text = MODULE.replace("BODY", "x = -x").replace(before, after)
    with pytest.raises(EditImpossible, match=why):
        as_tensor(text, 11, "on")
