"""The scenarios that need a CUDA device, on a CPU: torch's own trees decide, without CUDA.

`cudagraph_programs.py` runs them in one child. On a device `test_scenarios.py` runs them for real
(`pytest -m gpu`). An output that was overwritten cannot be seen here: that is C++ which wheels for
CPUs do not have. Neither can kernels that are tried on a device.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import captured
from scenario_cases import Case, cases, differences, torch_version

NOT_WITHOUT_A_DEVICE = ("output_overwritten", "autotuning")
RUN_LIMIT_S = 240

ON_A_CPU = [
    item for item in cases() if item.needs == "cuda" and item.name not in NOT_WITHOUT_A_DEVICE
]

pytestmark = [
    pytest.mark.timeout(RUN_LIMIT_S + 60),
    pytest.mark.skipif(
        torch_version().release[:2] != (2, 13),
        reason="the stand-in for a recorded graph fits torch 2.13",
    ),
]


@pytest.fixture(scope="module")
def receipts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The receipt of each program, by its path."""
    report = tmp_path_factory.mktemp("programs") / "receipts.json"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TORCH")}
    driver = Path(__file__).parents[1] / "support" / "cudagraph_programs.py"
    words = (driver, report, *(item.program for item in ON_A_CPU))
    env = {**kept, "PYTHONDONTWRITEBYTECODE": "1"}
    done = captured(sys.executable, *map(str, words), env=env, timeout=RUN_LIMIT_S)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(report.read_text(encoding="utf-8"))


@pytest.mark.parametrize("item", ON_A_CPU, ids=lambda item: item.id)
def test_program_gives_the_expected_receipt(item: Case, receipts: dict[str, Any]) -> None:
    """Verdict, status, counts and findings are the ones of expected.toml."""
    receipt = receipts[str(item.program)]
    counts = {key: receipt["compile"][key] for key in item.counts}
    assert (receipt["verdict"], receipt["status"]) == (item.verdict, item.status)
    assert counts == item.counts
    assert differences(item.findings, receipt["findings"]) == []


@pytest.mark.parametrize("name", sorted({item.name for item in ON_A_CPU}))
def test_the_fix_changes_no_result_and_keeps_its_graphs(name: str, receipts) -> None:
    """Both programs print the same; the fixed one records once a size and then only replays."""
    broken, fixed = (
        receipts[str(item.program)]
        for item in sorted(ON_A_CPU, key=lambda item: item.side)
        if item.name == name
    )
    assert broken["printed"] == fixed["printed"] != ""
    graphs = fixed["cudagraph"]
    assert set(graphs["recordings_by_reason"]) == {"first"}
    assert graphs["recordings"] == fixed["compile"]["graphs"]
    assert graphs["replays"] > graphs["recordings"]
