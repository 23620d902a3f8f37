"""Lists of numbers as tensors: the exact text, and where it is refused."""

from __future__ import annotations

import pytest

from compilediag.fixes.codemods.edit import Edit, EditImpossible, NothingToEdit, edited

pytest.importorskip("libcst")

PROGRAM = """\
import torch

BETAS = {table}


@torch.compile
def noised(x, t):
    return x * {used}


def shown(t):
    print(BETAS[t], len(BETAS))
"""


def changed(table: str = "[0.1, 0.2]", used: str = "BETAS[t]") -> str:
    return edited(PROGRAM.format(table=table, used=used), [Edit("", 8, "tables_as_tensors")])


@pytest.mark.parametrize(
    ("table", "dtype"),
    [
        ("[0.1, 0.2]", "float64"),
        ("[1, 2]", "int64"),
        ("[i / 3 for i in range(9)]", "float64"),
        ("[2 * i for i in range(9)]", "int64"),
        ("[0.5] * 10", "float64"),
        ("list(range(10))", "int64"),
        ("torch.linspace(1e-4, 0.02, 10).tolist()", "float64"),
    ],
)
def test_a_table_is_a_tensor_of_the_same_numbers(table: str, dtype: str) -> None:
    found = changed(table)
    assert f"BETAS = torch.tensor({table}, dtype=torch.{dtype})\n" in found
    assert "    return x * BETAS[t]\n" in found
    assert "    print(BETAS[t].item(), len(BETAS))\n" in found


@pytest.mark.parametrize("used", ["BETAS[t] ** 0.5", "(1 - BETAS[t - 1])", "BETAS[t] * 2"])
def test_what_a_tensor_does_as_well(used: str) -> None:
    assert used in changed(used=used)


@pytest.mark.parametrize(
    ("table", "used", "why"),
    [
        ("['a', 'b']", "len(BETAS[t])", "not evidently a list of numbers"),
        ("[[1], [2]]", "BETAS[t]", "not evidently a list of numbers"),
        ("made()", "BETAS[t]", "not evidently a list of numbers"),
        ("[width, 2]", "BETAS[t]", "integers or fractions"),
        ("[2**i for i in range(3)]", "BETAS[t]", "integers or fractions"),
        ("[0.1, 0.2]", "(1 if BETAS[t] else 2)", "decides a branch"),
        ("[0.1, 0.2]", "x.view(BETAS[t])", "is passed on"),
        ("[0.1, 0.2]", "BETAS[t] * sum(BETAS)", "used for more than its items"),
        ("[0.1, 0.2]", "BETAS[t] * BETAS[t:][0]", "used as a list"),
    ],
)
def test_what_needs_the_list(table: str, used: str, why: str) -> None:
    with pytest.raises(EditImpossible, match=why):
        changed(table, used)


def test_a_list_that_changes() -> None:
    text = PROGRAM.format(table="[0.1]", used="BETAS[t]") + "\n\nBETAS = [0.2]\n"
    with pytest.raises(EditImpossible, match="more than one value"):
        edited(text, [Edit("", 8, "tables_as_tensors")])


@pytest.mark.parametrize("used", ["t", "BETAS[0]"])
def test_no_item_by_a_variable(used: str) -> None:
    with pytest.raises(NothingToEdit):
        changed(used=used)
