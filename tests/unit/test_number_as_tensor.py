"""A Python number that code changes as a 0-dim tensor: the exact text, and where it is refused."""

import pytest

from compilediag.fixes.edits.rewrite import rewrite
from compilediag.rules.changes import Edit, EditImpossible

pytest.importorskip("libcst")

MODULE = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.calls: int = 0  # how often

    def forward(self, x):
        # one more
        self.calls += 1  # each time
        scale = self.calls / 2
        return self.layer(x) * scale

    def extra_repr(self):
        return f"calls={self.calls}"

    def reset(self):
        self.calls = 0


block = Block(4)
print(block.calls)
"""

CLOSURE = """\
import torch


def watch(layer):
    n = 0

    def hook(module, args, output):
        nonlocal n
        n += 1
        return output * n

    layer.register_forward_hook(hook)
    return lambda: print, count


def count():
    return 1
"""

GLOBAL = """\
import torch

WEIGHT = 0.5


@torch.compile
def loss(x):
    return x * WEIGHT


def advance(factor):
    global WEIGHT
    WEIGHT = WEIGHT * factor
"""

REFUSING = """\
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 0
        self.other = 2

    def forward(self, x):
        self.n += 1
        BODY
        return x
"""


def as_tensor(text: str, line: int, name: str, dtype: str) -> str:
    return rewrite(text, [Edit("", line, "number_as_tensor", (name, dtype))])


def test_an_attribute_of_a_module_is_a_buffer() -> None:
    wanted = (
        MODULE.replace(
            "self.calls: int = 0",
            'self.register_buffer("calls", torch.zeros((), dtype=torch.int64), persistent=False)',
        )
        .replace("self.calls += 1", "self.calls.add_(1)")
        .replace("{self.calls}", "{self.calls.item()}")
        .replace("self.calls = 0", "self.calls.fill_(0)")
        .replace("print(block.calls)", "print(block.calls.item())")
    )
    assert as_tensor(MODULE, 13, "calls", "int64") == wanted


def test_lines_that_the_author_shares_stay() -> None:
    text = "a = 1; b = 2\n\nclass Ema:\n    def __init__(self):\n        self.k, self.n = 2, 0\n\n"
    text += "    def step(self, x):\n        self.n += 1\n        return x * self.n\n"
    found = as_tensor(text, 8, "n", "int64")
    assert "a = 1; b = 2\n" in found
    assert "self.k = 2; self.n = torch.zeros(" in found


def test_an_attribute_that_a_function_of_the_module_reads() -> None:
    text = (
        REFUSING.replace("BODY", "x = x * self.n") + "\n\ndef shown(block):\n    return block.n\n"
    )
    assert "return block.n.item()" in as_tensor(text, 11, "n", "int64")


@pytest.mark.parametrize(
    ("first", "apart"),
    [
        ("self.k, self.n = 2, 0", "        self.k = 2\n        self.n = torch.zeros("),
        ("self.k, self.n = make(), 0", "        self.k = make()\n        self.n = torch.zeros("),
        ("self.k = self.n = 0  # why", "        self.k = 0\n        self.n = torch.zeros("),
        ("self.n, self.k = 0, make()", "\n        self.k = make()\n"),
    ],
)
def test_a_number_that_is_set_together_with_others(first: str, apart: str) -> None:
    text = f"class Ema:\n    def __init__(self):\n        {first}\n\n    def step(self, x):\n"
    text += "        self.n += 1\n        return x * self.n\n"
    assert apart in as_tensor(text, 6, "n", "int64")
    for value in ("self.made(), 0", "0, self.made()"):
        with pytest.raises(EditImpossible):
            as_tensor(text.replace(first, f"self.n, self.k = {value}"), 6, "n", "int64")


def test_a_number_of_a_closure() -> None:
    wanted = (
        CLOSURE.replace("n = 0\n", "n = torch.zeros((), dtype=torch.int64)\n")
        .replace("        nonlocal n\n", "")
        .replace("n += 1", "n.add_(1)")
    )
    assert as_tensor(CLOSURE, 9, "n", "int64") == wanted


def test_a_number_of_a_module() -> None:
    wanted = (
        GLOBAL.replace("= 0.5", "= torch.tensor(0.5, dtype=torch.float64)")
        .replace("    global WEIGHT\n", "")
        .replace("WEIGHT = WEIGHT * factor", "WEIGHT.fill_(WEIGHT.item() * factor)")
    )
    assert as_tensor(GLOBAL, 8, "WEIGHT", "float64") == wanted


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("if self.n % 10 == 0: save(x)", "decides a branch"),
        ("x = -x if self.n else x", "decides a branch"),
        ("while self.n < 3: x = -x", "decides a branch"),
        ("x = x and not self.n", "decides a branch"),
        ("x = x[self.n]", "is an index"),
        ("x = x[:self.n]", "is an index"),
        ("for _ in range(self.n): x = -x", "is passed on"),
        ("k = self.n + 1; x = x.view(k)", "`k` is passed on"),
        ("k = self.n + 1; j = k * 2; x = x[j]", "`j` is an index"),
        ('print(f"{self.n}")', "is part of a text"),
        ('print("%d" % self.n)', "is part of a text"),
        ("before = self.n", "would change with the variable"),
        ("self.other = self.n + 1", "would change with the variable"),
        ("self.other += self.n", "is added to another number"),
        ("return self.n", "leaves the function"),
        ("x = self.log(self.n)", "is passed on"),
        ("self.n = 0.5", "to no integer"),
        ("self.n = self.n / 2", "to no integer"),
        ("self.n /= 2", "to no integer"),
        ("self.n **= 2", "to no integer|no method"),
        ("self.n, *y = 1, 2", "together with others"),
        ("self.n = y = make()", "more than one name|together with others"),
        ("del self.n", "together with others"),
        ('x = x + getattr(self, "n")', "has 'n' as text"),
        ("x = x + 1 if 1 < self.n < 3 else x", "compares more than two values"),
    ],
)
def test_where_python_needs_the_number(body: str, why: str) -> None:
    with pytest.raises(EditImpossible, match=why):
        as_tensor(REFUSING.replace("BODY", body), 11, "n", "int64")


@pytest.mark.parametrize(
    "body",
    [
        "x = x * self.n",
        "x = x + (self.n - 1) / self.other",
        "x = x.mul(self.n)",
        "k = self.n * 2; x = x / k",
        "self.n = self.n + len(x)",
    ],
)
def test_where_a_tensor_is_as_good(body: str) -> None:
    assert "self.n.add_(1)" in as_tensor(REFUSING.replace("BODY", body), 11, "n", "int64")


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("self.n = 0\n", "self.n = None\n", "not a number"),
        ("self.n = 0\n", "if True: self.n = 0\n", "does not set n in every case"),
        ("self.n = 0\n", "pass\n", "does not set n in every case"),
        ("super().__init__()", "pass", "not a module whose parts are known"),
        ("    def forward", "    def n(self): pass\n\n    def forward", "also a method"),
        ("class Block(nn.Module)", "class Block(Base, nn.Module)", None),
    ],
)
def test_the_class_must_be_known(before: str, after: str, why: str | None) -> None:
    text = REFUSING.replace("BODY", "pass").replace(before, after)
    line = next(at for at, each in enumerate(text.splitlines(), 1) if "self.n += 1" in each)
    if why is None:
        as_tensor(text, line, "n", "int64")
        return
    with pytest.raises(EditImpossible, match=why):
        as_tensor(text, line, "n", "int64")


def test_an_attribute_that_may_be_of_another_class() -> None:
    other = "\n\nclass Other:\n    def __init__(self):\n        self.n = 1\n"
    text = REFUSING.replace("BODY", "pass") + other
    assert "self.n = 1" in as_tensor(text, 11, "n", "int64")
    with pytest.raises(EditImpossible, match=r"`?b.n`? may be of Block or of Other"):
        as_tensor(f"{text}\n\nb = Block()\nprint(b.n)\n", 11, "n", "int64")


def test_a_number_that_is_first_set_in_a_loop() -> None:
    text = "import torch\nfor N in range(3):\n    torch.compile(lambda x: x * N)\n"
    with pytest.raises(EditImpossible):
        as_tensor(text, 3, "N", "int64")
    with pytest.raises(EditImpossible, match="does not read"):
        as_tensor(text, 1, "N", "int64")
