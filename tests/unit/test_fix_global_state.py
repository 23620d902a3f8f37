"""The global state of torch: what is offered, and the edits of the file that sets it."""

from __future__ import annotations

import msgspec
import pytest

from compilediag.fixes.candidates.global_state import global_state_candidates
from compilediag.fixes.codemods.edit import Edit, EditImpossible, edited
from compilediag.receipt.schema.compiles import EnteredAt
from tests.unit.test_fix_passed import case

pytest.importorskip("libcst")

PRECISION = ("torch.set_float32_matmul_precision", "torch.backends.cuda.matmul.allow_tf32")
CALL = EnteredAt(file="train.py", line=9)

PROGRAM = """\
\"\"\"Trains.\"\"\"

import torch, os
from torch import nn

# The model.
model = torch.compile(nn.Linear(2, 2))


def train():
    model(torch.ones(2))
    {}
"""


def setting(statement: str, program: str = PROGRAM) -> str:
    return edited(program.format(statement), [Edit("", 11, "set_first", PRECISION)])


@pytest.mark.parametrize(
    "statement",
    ["torch.set_float32_matmul_precision('high')", "torch.backends.cuda.matmul.allow_tf32 = True"],
)
def test_a_setting_is_made_below_the_imports_too(statement: str) -> None:
    found = setting(statement)
    assert found.count(statement) == 2
    assert f"# The model.\n{statement}\nmodel = torch.compile" in found


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("pass", "is not at exactly one place"),
        ("torch.set_float32_matmul_precision(chosen)", "sets what is computed"),
        ("torch.set_float32_matmul_precision(*chosen)", "sets what is computed"),
        ("torch.backends.cuda.matmul.allow_tf32 = not fast", "sets what is computed"),
        (
            (
                "torch.set_float32_matmul_precision('high')\n"
                "    torch.set_float32_matmul_precision('highest')"
            ),
            "is not at exactly one place",
        ),
        ("old = torch.backends.cuda.matmul.allow_tf32", "is not at exactly one place"),
    ],
)
def test_a_setting_that_is_no_constant_of_the_program_stays(statement: str, why: str) -> None:
    with pytest.raises(EditImpossible, match=why):
        setting(statement)


def test_torch_is_imported_where_a_setting_is_made() -> None:
    late = PROGRAM.replace("import torch, os", "import os\nos.umask(0)\nimport torch")
    with pytest.raises(EditImpossible, match="import torch"):
        setting("torch.set_float32_matmul_precision('high')", late)
    first = "import torch\ntorch.set_float32_matmul_precision('high')\n"
    with pytest.raises(EditImpossible, match="already"):
        edited(first, [Edit("", 2, "set_first", PRECISION)])


MODES = """\
with torch.no_grad(), open(path) as stream:  # warm
    predict(batch)
    def inner():
        predict(batch)
with torch.inference_mode():
    predict(batch)
"""


def test_a_mode_is_replaced_around_its_call() -> None:
    def of(line: int) -> str:
        return edited(MODES, [Edit("", line, "mode", ("torch.no_grad", "torch.inference_mode"))])

    assert "with torch.inference_mode(), open(path) as stream:  # warm\n" in of(2)
    for line in (4, 6):
        with pytest.raises(EditImpossible, match="encloses"):
            of(line)


def test_what_is_offered() -> None:
    found = list(global_state_candidates(case("CD111", CALL, kind="inference_mode")))
    assert [change.edits[0].code[1] for change in found] == ["torch.no_grad"]
    assert list(global_state_candidates(case("CD111", CALL, kind="deterministic")))
    # Whether the graph of early outputs is used is no answer that is compared.
    for kind in ("grad_mode", "autocast.cpu.enabled", "default_device"):
        assert not list(global_state_candidates(case("CD111", CALL, kind=kind)))
    assert not list(global_state_candidates(case("CD104", CALL, kind="deterministic")))
    elsewhere = msgspec.structs.replace(CALL, file="/lib/torch/x.py")
    assert not list(global_state_candidates(case("CD111", elsewhere, kind="inference_mode")))
