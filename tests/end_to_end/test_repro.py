"""`compilediag repro`: the program it writes compiles again for the same cause, or the reason why
there is none is said; and text of the target never becomes code.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from repro_cases import CASES, write_receipt_and_program

from compilediag import cli
from compilediag.extensions.repro.views.script import script_of

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
        Path(paths[name]).write_text(script_of(1, case.finding), encoding="utf-8")
    driver, output = folder / "driver.py", folder / "told.json"
    driver.write_text(DRIVER, encoding="utf-8")
    command = [sys.executable, str(driver), str(output), *paths.values()]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=200
    )
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
