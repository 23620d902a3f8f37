"""`compilediag repro`: the program it writes compiles again for the same cause, or the reason why
there is none is said; and text of the target never becomes code.
"""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import captured
from hypothesis import given
from hypothesis import strategies as st
from repro_cases import CASES, HOOK, Case, receipt_of, write_receipt_and_program

from compilediag import cli
from compilediag.errors import ReproImpossible
from compilediag.extensions.repro.script import build_script
from compilediag.receipt.file import write_receipt

pytestmark = pytest.mark.usefixtures("forked")

ORACLE = Path(__file__).parents[1] / "support" / "oracle.py"

DRIVER = """
import json, runpy, sys
import torch
import torch._dynamo.utils
import compilediag
told = {}
torch._dynamo.utils.set_compilation_metrics_limit(10_000)
for path in sys.argv[2:]:
    torch._dynamo.reset()
    before = len(torch._dynamo.utils.get_compilation_metrics())
    try:
        with compilediag.watch() as seen:
            runpy.run_path(path, run_name="__main__")
    finally:
        torch.set_grad_enabled(True)
        torch.set_float32_matmul_precision("highest")
        torch.set_default_dtype(torch.float32)
    rows = torch._dynamo.utils.get_compilation_metrics()[before:]
    told[path] = {
        "findings": [
            [f.rule, f.variable, f.evidence.get("expected"), f.evidence.get("actual")]
            for f in seen.receipt.findings if f.severity != "info"
        ],
        "reasons": sum(row.recompile_reason is not None for row in rows),
    }
open(sys.argv[1], "w").write(json.dumps(told))
"""
"""Runs scripts, each under `watch()`; torch's own metrics rows count the recompiles beside it."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Every script, run in one process; name of the case to what was found."""
    folder = tmp_path_factory.mktemp("scripts")
    paths = {name: str(folder / f"repro_{name}.py") for name in CASES}
    for name, case in CASES.items():
        Path(paths[name]).write_text(build_script(1, case.finding), encoding="utf-8")
    driver, output = folder / "driver.py", folder / "told.json"
    driver.write_text(DRIVER, encoding="utf-8")
    command = [sys.executable, str(driver), str(output), *paths.values()]
    done = captured(*command, cwd=folder, timeout=200)
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(output.read_text(encoding="utf-8"))
    return {name: told[path] for name, path in paths.items()}


@pytest.mark.parametrize("name", CASES)
def test_script_gives_the_same_cause(name: str, ran: dict[str, dict[str, Any]]) -> None:
    """The script compiles again once, by torch's own count too, for the cause it was written for:
    the same code and variable, and the same values where they were known."""
    case = CASES[name]
    assert ran[name]["reasons"] == 1
    (found,) = ran[name]["findings"]
    assert found[:2] == [case.rule, case.variable]
    if case.expected is not None and case.rule != "CD115":
        assert found[2:] == [case.expected, case.actual]


# --- the command -----------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a receipt of one finding and the program it speaks of."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    write_receipt_and_program(tmp_path)
    return tmp_path


def test_a_script_under_torch_alone(folder: Path) -> None:
    """torch's own metrics, with nothing of compilediag in the process, count one recompile."""
    assert cli.main(["repro", "1", "r.json"]) == 0
    command = [sys.executable, str(ORACLE), "told.json", "repro_1.py"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)
    counts = json.loads((folder / "told.json").read_text(encoding="utf-8"))["counts"]
    assert (counts["compiles"], counts["recompiles"], counts["graph_breaks"]) == (2, 1, 0)


@pytest.mark.parametrize("name", CASES)
def test_script_says_what_it_is(name: str) -> None:
    """Every script says that it is not the user's program, and quotes the guard's values."""
    case = CASES[name]
    text = build_script(1, case.finding, ["> 7 self.pe = grow()"])
    comments = "\n".join(line for line in text.splitlines() if line.startswith("#"))
    assert "This is NOT the program that was run" in comments
    assert f"{case.rule} slug" in comments
    assert "#   > 7 self.pe = grow()" in comments
    assert case.expected is None or case.expected in comments


def test_inputs_of_the_run_are_used_where_they_are_known() -> None:
    """The first tensor of a recorded call is passed; without one, the script says so."""
    case = CASES["bool"].finding
    told = build_script(1, case, (), "[8, 16], mask=[8]")
    assert "torch.ones([8, 16])" in told
    assert "the run was called with [8, 16], mask=[8]" in told
    untold = build_script(1, case, (), "[9000000000, 16]")
    assert "torch.ones([2, 4])" in untold
    assert "inputs were not recorded" in untold


# --- where it cannot be ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (CASES["int"]._replace(expected=None), "does not hold both values"),
        (CASES["int"]._replace(expected="'<redacted>'"), "as secrets"),
        (CASES["int"]._replace(actual="app.Config object"), "how to make such values"),
        (CASES["int"]._replace(variable="captured variable 0"), "no name"),
        (CASES["int"]._replace(variable="f(x)[0]"), "no name"),
        (CASES["int"]._replace(variable="torch"), "needs itself"),
        (CASES["enum"]._replace(variable="Mode"), "name of a class"),
        (CASES["int"]._replace(source=""), "where torch found"),
        (CASES["size"]._replace(expected="[*, 8]"), "how to make such values"),
        (CASES["size"]._replace(actual="[90000, 90000]"), "too large"),
        (CASES["dtype"]._replace(kind="subclass"), "no small program"),
        (CASES["hook_set"]._replace(variable="0._backward_hooks"), "no forward hooks"),
        (CASES["aliasing"]._replace(guard="a is b"), "two arguments"),
        (CASES["size_one"]._replace(guard="L['x'].size()[0] <= 8"), "operations of the frame"),
        (CASES["grad_mode"]._replace(kind="torch_function_mode"), "no small program"),
        (CASES["grown_buffer"]._replace(variable="layers.0"), "names a module"),
        (CASES["attribute"]._replace(expected="'a' absent", kind="attribute_set"), "came or went"),
        (CASES["int"]._replace(rule="CD116"), "optimizer"),
        (CASES["int"]._replace(rule="CD201"), "graph break"),
        (CASES["int"]._replace(rule="CD150"), "not happened"),
        (CASES["int"]._replace(rule="CD903"), "record of the run"),
    ],
)
def test_where_it_cannot_be_the_reason_is_said(case: Case, reason: str) -> None:
    """No script rather than one that shows something else."""
    with pytest.raises(ReproImpossible, match=reason):
        build_script(1, case.finding)


EVIL = "x'''\"\"\"\n\r\u2028import os; os.system('touch planted')\x1b[31m#\\"


@pytest.mark.parametrize("field", ["variable", "expected", "actual", "source", "guard"])
@pytest.mark.parametrize("name", CASES)
def test_text_of_the_target_never_becomes_code(field: str, name: str) -> None:
    """A doctored receipt plants nothing: a script has the same statements as without, or there is
    none."""
    case = CASES[name]
    try:
        text = build_script(1, case._replace(**{field: EVIL}).finding, [EVIL])
    except ReproImpossible:
        return
    assert "os.system" not in "\n".join(
        line for line in text.split("\n") if not line.startswith("#")
    )
    assert "\x1b" not in text
    if field == "source" and case.source == HOOK:
        case = case._replace(source="L['a']")  # no hook is in the way any more
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(build_script(1, case.finding)))


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_two_values_give_a_program_or_a_reason(expected: str, actual: str) -> None:
    """Whatever the values: what is written parses, and holds no call but the known ones."""
    try:
        text = build_script(1, CASES["int"]._replace(expected=expected, actual=actual).finding)
    except ReproImpossible:
        return
    calls = {
        ast.unparse(node.func) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)
    }
    assert calls <= {"torch.compile", "torch.ones", "repeated", "len"}


def test_command_writes_a_script_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The script quotes the lines of the program; it is never written over."""
    assert cli.main(["repro", "1", "r.json"]) == 0
    assert "next: compilediag run repro_1.py" in capsys.readouterr().out
    text = (folder / "repro_1.py").read_text(encoding="utf-8")
    assert "#   >    2      if causal:" in text
    assert cli.main(["repro", "1", "r.json"]) == 2
    assert "stays as it is" in capsys.readouterr().err
    assert (folder / "repro_1.py").read_text(encoding="utf-8") == text


def test_command_prints_a_script(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With `--output -` it goes to stdout alone; a program that is gone is not quoted."""
    (folder / "model.py").unlink()
    assert cli.main(["repro", "1", "r.json", "--output", "-"]) == 0
    text = capsys.readouterr().out
    assert "lines of the run" not in text
    assert ast.parse(text).body
    assert sorted(p.name for p in folder.iterdir()) == ["r.json"]


def test_command_says_why_not(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, the finding and the reason; nothing is written."""
    write_receipt(receipt_of(CASES["int"]._replace(rule="CD211")), folder / "r.json")
    assert cli.main(["repro", "1", "r.json"]) == 2
    said = capsys.readouterr().err
    assert "no small program for finding 1, CD211 slug: a graph break" in said
    assert cli.main(["repro", "2", "r.json"]) == 2
    assert "findings 1 to 1, and no 2" in capsys.readouterr().err
    assert cli.main(["repro", "1", "r.json", "--output", "no/where.py"]) == 2
    assert "r.json" in os.listdir(folder)
    assert not (folder / "repro_1.py").exists()
