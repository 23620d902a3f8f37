"""docs/project/fixes.md belongs to the scenarios as they are, and its sums follow from its rows."""

import hashlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "fixes"))
try:
    import page as pages
    import plain
finally:
    sys.path.pop(0)

PAGE = ROOT / "docs" / "project" / "fixes.md"
SCENARIOS = ROOT / "scenarios"


def test_what_the_page_says_of_scenarios_is_of_these() -> None:
    """Or it says nothing of them; and at most 1,250 words in all."""
    text = PAGE.read_text(encoding="utf-8")
    now = {path.parent.name: path.read_bytes() for path in SCENARIOS.glob("*/broken.py")}
    programs = {
        name: {"program": hashlib.sha256(content).hexdigest()[:12]} for name, content in now.items()
    }
    stated = re.findall(r"<!-- programs (\w+) -->", text)
    assert stated in ([], [pages.digest_programs(programs)]), "make fixes"
    assert len(text.split()) <= 1250


def result(*findings: Any, **more: Any) -> Any:
    return {
        "scenario": "one",
        "program": "0" * 12,
        "torch": "2.13.0",
        "not_run": None,
        "findings": list(findings),
        **more,
    }


def finding(**more: Any) -> Any:
    empty = dict.fromkeys(("proof", "why", "unchecked"))
    usual = {"id": "F1", "rule": "CD104", "variable": "self.n", "title": ""}
    return {**usual, **empty, "refused": [], "contradictions": [], **more}


PUBLIC: Any = {
    "about": "Measured by hand.",
    "programs": [
        {
            "name": "mnist",
            "repository": "pytorch/examples",
            "commit": "77f55b9",
            "command": "main.py --epochs 2",
            "findings": 3,
            "proved": 1,
            "change": "`export A=1`",
            "executions": 3,
            "wall": 2.96,
            "cpu": 3.24,
        }
    ],
}
ROW = "| mnist (pytorch/examples 77f55b9) | 3 | 1 | 3 | 3.0 | 3.2 | `export A=1` |\n"


def test_the_page() -> None:
    found = [
        result(
            finding(proof=("environment", "export A=1|2"), contradictions=["exit code 0 → 1"]),
            finding(rule="CD101", refused=[("x = 1", "1 of 1 recompiles remain")]),
            finding(rule="CD101", why="no candidate"),
        ),
        result(scenario="two", not_run="needs CUDA"),
    ]
    text = pages.rendered(found, ["one", "two", "three"], PUBLIC)
    assert "Measured by hand.\n\n| program |" in text
    assert ROW in text
    assert "**1 of 3 findings (33%) have a proved change**" in text
    assert "goal of 80%\nis missed by 47%" in text
    assert "1 contradicted" in text
    assert "- one F1 (CD104): exit code 0 → 1" in text
    assert "| [CD101](../rules/CD101.md) | 2 | 0 | 0% |  |" in text
    assert "| [CD104](../rules/CD104.md) | 1 | 1 | 100% | environment 1 |" in text
    assert "1 scenarios have no result yet" in text
    assert "1 findings have no change that could be tried" in text
    assert (
        "0 findings are about the environment, or of programs that fail as they are\n(none)" in text
    )
    assert "- two: needs CUDA\n" in text
    assert "scenario" not in pages.rendered([], ["one"], PUBLIC)


def test_findings_about_something_else_are_counted_apart_and_not_hidden() -> None:
    fails = "the program itself fails: killed"
    found = [
        result(
            finding(proof=("environment", "export A=1")),
            finding(rule="CD613", why="no candidate"),
            finding(rule="CD105", why=fails),
            finding(rule="CD902", refused=[("x = 1", "1 of 1 findings remain")]),
            finding(rule="CD101", why="no candidate"),
        )
    ]
    text = pages.rendered(found, ["one"], PUBLIC)
    assert "**1 of 5 findings (20%) have a proved change**" in text
    assert "2 findings are about the environment, or of programs that fail as they are" in text
    assert "(CD105, CD613): of the other 3, 33% have a proved change" in text


PROGRAM = """\
import os
import torch

@torch.compile
def f(x):
    return x

def g():
    for x in range(3):
        print(
            f(x),
        )

def add(model):
    def hook(module, inputs, output):
        pass
    model.register_forward_hook(hook)
"""


def followed(line: str, folder: Path) -> str:
    (folder / plain.PROGRAM).write_text(PROGRAM, encoding="utf-8")
    assert plain.followed({"change": line, "patch": None}, folder) == []
    return (folder / plain.PROGRAM).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("line", "old", "new"),
    [
        (
            "mark(x, 0)  # before the call, broken.py:11",
            "        print(\n",
            "        mark(x, 0)\n        print(\n",
        ),
        (
            "torch._dynamo.config.ignore_logging_functions = {logging.Logger.info}",
            "import torch\n",
            "import torch\nimport torch._dynamo.config\nimport logging\ntorch._dynamo.config.ign",
        ),
        ("torch.compile(..., dynamic=True)", "@torch.compile\n", "@torch.compile(dynamic=True)\n"),
        ("f(x.clone())  # at the call, broken.py:11", "f(x),", "f(x.clone()),"),
        (
            "f = compilediag.FixedShape(f, buckets=[4, 6])  # where it is compiled",
            "    return x\n",
            "    return x\n\n\nf = compilediag.FixedShape(f, buckets=[4, 6])\n",
        ),
    ],
)
def test_a_line_is_written_where_it_says(line: str, old: str, new: str, tmp_path: Path) -> None:
    assert new in followed(line, tmp_path)
    assert old in PROGRAM


def test_what_a_call_computes_is_assigned_first(tmp_path: Path) -> None:
    line = "given1 = a[i]; given2 = b[i]; mark(given1, 0); mark(given2, 0)"
    text = "import torch\n\nfor i in (1, 2):\n    y = f(a[i], k=b[i]) + a[i]\n"
    place = tmp_path / "broken.py"
    place.write_text(text)
    shown = f"{line}  # before the call, broken.py:4, passing given1 and given2"
    assert plain.followed({"change": shown, "patch": None}, tmp_path) == []
    changed = f"    {line}\n    y = f(given1, k=given2) + a[i]\n"
    assert place.read_text().replace("import torch\nimport torch", "import torch").endswith(changed)
    place.write_text(text.replace("k=b[i]", "c"))
    with pytest.raises(plain.CannotFollow, match="does not pass"):
        plain.followed({"change": shown, "patch": None}, tmp_path)


@pytest.mark.parametrize(
    "line", ["mark(x, 0)  # before the call", "mark(x)  # before the call, other.py:3", "do it"]
)
def test_a_line_without_a_place_cannot_be_followed(line: str, tmp_path: Path) -> None:
    with pytest.raises(plain.CannotFollow):
        followed(line, tmp_path)


def proof(before: int, after: int) -> Any:
    figures = [{"name": name, "before": 0, "after": 0} for name in plain.COUNTED]
    figures[0] = {"name": "recompiles", "before": before, "after": after}
    own = {"name": "finding", "figures": [{"name": "recompiles", "before": 1, "after": 0}]}
    return {"points": [own, {"name": "better", "figures": figures}]}


def seen(recompiles: int, **more: Any) -> plain.Counted:
    counts = dict.fromkeys(plain.COUNTED.values(), 0) | {"graphs": 1, "recompiles": recompiles}
    return plain.Counted(0, {**counts, **more}, ("loss 1",))


def test_what_torch_counts_contradicts() -> None:
    assert plain.check(proof(2, 0), seen(2), seen(0)) == []
    wrong = plain.check(proof(2, 0), seen(2), seen(1))
    assert wrong == ["recompiles: the certificate has 2 → 0, torch counts 2 → 1"]
    assert plain.check(proof(2, 0), seen(3), seen(0))
    assert plain.check(proof(2, 0), seen(2), seen(0, graphs=0)) == ["nothing is compiled"]
    failed = plain.Counted(1, seen(0).counts, ("loss 2",))
    assert plain.check(proof(2, 0), seen(2), failed) == [
        "exit code 0 → 1",
        "different results are printed",
    ]
    silent = plain.Counted(0, seen(0).counts, ())
    assert plain.check(proof(2, 0), seen(2), silent) == ["different results are printed"]
