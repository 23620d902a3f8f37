"""Edits for code that needs a size as a number: not where a side would do something else."""

from __future__ import annotations

from textwrap import dedent

import pytest

from compilediag.fixes.codemods.edit import Edit, EditImpossible, edited

pytest.importorskip("libcst")

SCALE = """\
import torch
def scale(rows):
    if rows.size(0) == 6:  # here
        return rows * 0.5
    return rows * 0.25
"""


def changed(kind: str, text: str, *code: str) -> str:
    line = next(i for i, each in enumerate(text.splitlines(), 1) if "# here" in each)
    return edited(text, [Edit("f.py", line, kind, code)])


def test_a_tensor_that_holds_the_size_decides_the_branch() -> None:
    assert changed("branch_on_size", SCALE) == dedent("""\
        import torch
        def scale(rows):
            # here
            return torch.where(torch.full((), rows.size(0), device=rows.device) == 6, rows * 0.5, rows * 0.25)
        """)  # noqa: E501
    negative = SCALE.replace("rows.size(0) == 6", "rows.shape[-1] > 6")
    assert "torch.full((), rows.shape[-1], device=rows.device) > 6" in changed(
        "branch_on_size", negative
    )


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("rows.size(0) == 6", "rows.size(0) == limit", "does not compare a size with a number"),
        ("rows.size(0) == 6", "rows.numel() == 6", "does not compare a size with a number"),
        ("rows.size(0) == 6", "1 < rows.size(0) < 6", "is no comparison of a size"),
        ("rows.size(0) == 6", "rows.size(dim) == 6", "does not compare a size with a number"),
        ("return rows * 0.5", "raise ValueError", ""),
        ("return rows * 0.5", "return rows.add_(1)", "`rows` is changed in a side"),
        ("return rows * 0.5", "return roll(rows)", "may do more than compute a value"),
        ("return rows * 0.5", "return [rows]", "is no number or tensor"),
    ],
)
def test_a_branch_that_does_more_stays(before: str, after: str, why: str) -> None:
    assert before in SCALE
    with pytest.raises(EditImpossible) as error:
        changed("branch_on_size", SCALE.replace(before, after))
    assert why in str(error.value)
