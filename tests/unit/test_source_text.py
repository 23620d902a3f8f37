"""Edits of source: what is added, and that everything else stays as it is."""

import pytest

from compilediag.fixes.rewrite import rewrite
from compilediag.rules.changes import Edit, EditImpossible

PROGRAM = """\
# train
import logging

import torch  # the compiler


def step(x):
    # a note
    logging.info("mean %s", x.mean())  # each call
    if x.sum() > 0:
        print(
            "positive"
        )
    return x * 2


for x in batches:

    # the call
    y = compiled(  x,
        flag=True)
"""

MARK = "torch._dynamo.maybe_mark_dynamic(x, 0)"


def before(line: int, *code: str) -> Edit:
    return Edit("train.py", line, "before", code)


def test_statements_before_a_call() -> None:
    """With the indentation of the statement, below its comment; from any of its lines."""
    wanted = PROGRAM.replace("    y = compiled", f"    {MARK}\n    y = compiled")
    assert rewrite(PROGRAM, [before(20, MARK)]) == wanted
    assert rewrite(PROGRAM, [before(21, MARK)]) == wanted


def test_two_edits_of_one_statement_are_made_once_each() -> None:
    """Two findings may need the same mark."""
    other = "torch._dynamo.maybe_mark_dynamic(x, 1)"
    wanted = PROGRAM.replace("    y = compiled", f"    {MARK}\n    {other}\n    y = compiled")
    assert rewrite(PROGRAM, [before(20, MARK, other), before(21, MARK)]) == wanted


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (before(10, MARK), "line 10 is not a statement of its own"),
        (before(3, MARK), "line 3 is not a statement of its own"),
        (before(999, MARK), "line 999 is not a statement of its own"),
        (before(14, "a.2.b = 1"), "the edit is not valid Python"),
    ],
)
def test_what_cannot_be_edited(edit: Edit, why: str) -> None:
    """Nothing is edited by half."""
    with pytest.raises(EditImpossible, match=why):
        rewrite(PROGRAM, [before(20, MARK), edit])


def test_a_file_with_an_error_in_it() -> None:
    """It changed since it ran."""
    with pytest.raises(EditImpossible, match="cannot be parsed"):
        rewrite("def f(:\n", [before(1, MARK)])


def test_newlines_stay() -> None:
    """Of a file from another system."""
    found = rewrite(PROGRAM.replace("\n", "\r\n"), [before(20, MARK)])
    assert found == rewrite(PROGRAM, [before(20, MARK)]).replace("\n", "\r\n")
