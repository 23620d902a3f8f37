"""The recorded runs of the scenarios, by version of torch: diagnosed here without torch.

Every program was run once under `compilediag run` (`tools/record_journals.py`). What the outside
half makes of the journals is what expected.toml says, as it was in that run, and the counts are
those that torch's own trace of the run gives.
"""

import functools
import json
from dataclasses import replace
from pathlib import Path

import pytest
import recordings
import scenario_cases
from packaging.version import Version
from replayed_runs import replay

PATHS = recordings.list_paths()
VERSIONS = sorted({path.parent.name for path in PATHS})


OF_GUARDS = ("CD1", "CD62")
"""How the codes of findings begin whose place is that of a guard."""


@functools.cache
def tells_lines(torch: str) -> bool:
    """Whether guards of that torch know the line of the user that made them. Few of 2.7 do: a
    finding about the others stands at the compiled function."""
    guards = [
        guard
        for path in recordings.list_paths(torch)
        for text in recordings.read(path).files.values()
        for line in text.splitlines()
        if '"k":"Recompiled"' in line
        for entry in json.loads(line.split(" ", 2)[2])["entries"]
        for guard in entry["guards"]
    ]
    return sum(guard["user"] is not None for guard in guards) > len(guards) / 2


def without_places(case: scenario_cases.Case) -> scenario_cases.Case:
    """Expects findings about guards at any place; those of graph breaks have theirs from torch."""
    return replace(
        case,
        findings=tuple(
            {
                key: value
                for key, value in finding.items()
                if key not in {"line", "function"} or not finding["rule"].startswith(OF_GUARDS)
            }
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
    wrong = scenario_cases.compare(expected, exit_code, receipt, recording.comparable_counts)
    assert wrong == []
