"""A handful of `make liars`: what plain runs say of them, and that certify proves nothing false."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from sources import ROOT

TRUTHS = {
    "liar 3": "less is compiled",
    "liar 14": "other results",
    "liar 65": "other results with other inputs",
    "mutant 40.0": "wrong",
    "mutant 39.1": "wrong",
    "improving 41": "equal",
    "mutant 41.7": "wrong",
}


def judge(results: Path, *options: str) -> dict[str, dict[str, Any]]:
    command = [
        sys.executable,
        "tools/liars",
        "--results",
        str(results),
        *options,
        "--only",
        *TRUTHS,
    ]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = results.read_text(encoding="utf-8").splitlines()
    return {one["key"]: one for one in map(json.loads, lines)}


def test_plain_runs_tell_the_truth(tmp_path: Path) -> None:
    found = judge(tmp_path / "results.jsonl", "--plain")
    assert {key: found[key]["truth"] for key in TRUTHS} == TRUTHS
    assert not any(one["verdict"] for one in found.values())


@pytest.mark.skipif(not find_spec("compilediag.commands.certify"), reason="there is no certify")
def test_only_what_is_equal_is_proved(tmp_path: Path) -> None:
    found = judge(tmp_path / "results.jsonl")
    proved = {key for key, one in found.items() if one["verdict"] == "proved"}
    assert proved == {key for key, truth in TRUTHS.items() if truth == "equal"}
