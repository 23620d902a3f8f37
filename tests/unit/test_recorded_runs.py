"""The recorded runs of the scenarios, by version of torch: diagnosed here without torch.

Every program was run once under `compilediag run` (`tools/record_journals.py`). What the outside
half makes of the journals is what expected.toml says, as it was in that run, and the counts are
those that torch's own trace of the run gives.
"""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path

import pytest
import recordings
import scenario_cases
from packaging.version import Version
from replayed_runs import replay

EXPORTS = ("export_only",)
"""Scenarios with exports: torch's metrics have a row of each, and nothing that can run is left."""

PATHS = recordings.list_paths()
VERSIONS = sorted({path.parent.name for path in PATHS})


@functools.cache
def tells_lines(torch: str) -> bool:
    """Whether guards of that torch know the line of the user that made them. Those of 2.7 do not,
    so that a cause stands at the compiled function: the lines of variables of closures are found
    by our harness."""
    return any(
        guard["user"] and "__closure__" not in guard["source"]
        for path in recordings.list_paths(torch)
        for text in recordings.read(path).files.values()
        for line in text.splitlines()
        if '"k":"Recompiled"' in line
        for entry in json.loads(line.split(" ", 2)[2])["entries"]
        for guard in entry["guards"]
    )


def without_places(case: scenario_cases.Case) -> scenario_cases.Case:
    """Causes are expected anywhere; graph breaks have their place from every torch."""
    places = {"line", "function"}
    return replace(
        case,
        findings=tuple(
            {key: finding[key] for key in finding if key not in places or finding["rule"] > "CD2"}
            for finding in case.findings
        ),
    )


def test_places_are_left_out_of_one_version_alone() -> None:
    """Every place that expected.toml names is compared where torch gives it."""
    assert [torch for torch in VERSIONS if not tells_lines(torch)] == ["2.7.1"]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: f"{path.parent.name}-{path.name[:-8]}")
def test_a_recorded_run_gives_the_expected_receipt(path: Path, tmp_path: Path) -> None:
    """Exit code, status, verdict, counts and findings are those of expected.toml, and the counts
    are torch's."""
    recording = recordings.read(path)
    expected = scenario_cases.case(recording.name, recording.side, Version(recording.torch))
    if not tells_lines(recording.torch):
        expected = without_places(expected)
    receipt = replay(recording, tmp_path)
    exit_code = receipt["header"]["run"]["exit_code"]
    counted = None if recording.name in EXPORTS else recording.counted
    assert scenario_cases.compare(expected, exit_code, receipt, counted) == []
