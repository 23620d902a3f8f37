"""What grows while the program runs has its largest size from the start: the text, and refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compilediag.fixes.answers import compare
from compilediag.fixes.changes import Declared
from compilediag.fixes.codemods.edit import Edit, EditImpossible, edited
from compilediag.timeline.answers import HeldState
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Answer
from tests.unit.test_fix_answers import FUNCTION, tensor

pytest.importorskip("libcst")

GROWN = """\
from torch import nn


class Positions(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.register_buffer("table", self.build(1), persistent=False)  # one row

    def forward(self, x):
        if self.table.shape[0] < x.shape[1]:
            self.table = self.build(x.shape[1], device=x.device)
        return x + self.table[: x.shape[1]]
"""

FILLED = """\
class Cache(nn.Module):
    def __init__(self):
        super().__init__()
        self.length = 0

    def extend(self, length):
        if length > self.length:
            self.rows[:length] = fresh(length)
            self.length = length
        return self.rows[:length]

    def forward(self, x):
        return x + self.extend(len(x))
"""


def largest(text: str, line: int, name: str, size: int) -> str:
    return edited(text, [Edit("", line, "largest_in_init", (name, str(size)))])


def test_the_size_in_the_expression_of_init() -> None:
    assert largest(GROWN, 11, "table", 24) == GROWN.replace("build(1)", "build(24)")
    plain = GROWN.replace(
        'self.register_buffer("table", self.build(1), persistent=False)',
        "self.table = rows(1, width)",
    ).replace("self.build(x.shape[1], device=x.device)", "rows(x.shape[1], width)")
    assert largest(plain, 11, "table", 24) == plain.replace("rows(1, width)", "rows(24, width)")


def test_the_method_that_fills_it_is_called() -> None:
    wanted = FILLED.replace("self.length = 0\n", "self.length = 0\n        self.extend(24)\n")
    assert largest(FILLED, 7, "length", 24) == wanted


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("self.table[: x.shape[1]]", "self.table", "line 13: `self.table` is read as a whole"),
        ("self.table[: x.shape[1]]", "self.table[-1]", "is read as a whole"),
        ("self.table[: x.shape[1]]", "self.table[1:]", "is read as a whole"),
        (", persistent=False", "", "is in checkpoints"),
        ("self.build(1)", "rows(1, 4)", "not as"),
        ("self.build(1)", "self.build(1, 2)", "not as"),
        ("self.build(1)", "self.build(width)", "not as"),
        ("self.build(1)", "None", "not as"),
        ("        return x +", "        self.table = None\n        return x +", "2 places"),
        ("            self.table =", "            table =", "not inside a class that sets table"),
    ],
)
def test_a_size_that_is_not_evident(before: str, after: str, why: str) -> None:
    with pytest.raises(EditImpossible, match=why):
        largest(GROWN.replace(before, after), 11, "table", 24)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("extend(self, length)", "extend(self, length, base)", "read as a whole"),
        ("self.length = 0", "self.length = 0\n        return", "may end before"),
    ],
)
def test_a_method_that_cannot_be_called(before: str, after: str, why: str) -> None:
    line = 8 if "return" in after else 7
    with pytest.raises(EditImpossible, match=why):
        largest(FILLED.replace(before, after), line, "length", 24)


def held(*states: tuple[int | None, Answer]) -> Timeline:
    found = [
        HeldState(0, FUNCTION, 0, "Model", call, (replace(answer, path=".table"),), True)
        for call, answer in states
    ]
    return Timeline(held_states=tuple(found))


def test_what_grows_is_compared_at_the_end() -> None:
    declared = Declared(grown=frozenset(["table"]))
    before = held((0, tensor(1.0)), (None, tensor(1.0, 2.0)))
    full = held((0, tensor(1.0, 2.0)), (None, tensor(1.0, 2.0)))
    assert compare(before, full, declared).difference is None
    assert compare(before, full).difference is not None
    other = Declared(grown=frozenset(["rows"]))
    assert compare(before, full, other).difference is not None
    # Larger than it came to, another content, or nothing to compare at the end.
    for lie in (
        held((0, tensor(1.0, 2.0)), (None, tensor(1.0, 2.0, 3.0))),
        held((0, tensor(1.0, 2.0)), (None, tensor(1.0, 9.0))),
        held((0, tensor(1.0, 2.0))),
    ):
        assert compare(before, lie, declared).difference is not None
