"""The recorded runs of the scenarios, by version of torch: diagnosed here without torch.

Every program was run once under `compilediag run` (`tools/record_journals.py`). What the outside
half makes of the journals is what expected.toml says, as it was in that run, and the counts are
those that torch's own trace of the run gives.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import recordings
import scenario_cases
from packaging.version import Version
from replayed_runs import replay

EXPORTS = ("export_only",)
"""Scenarios with exports: torch's metrics have a row of each, and nothing that can run is left."""

PATHS = recordings.list_paths()


@pytest.mark.parametrize("path", PATHS, ids=lambda path: f"{path.parent.name}-{path.name[:-8]}")
def test_a_recorded_run_gives_the_expected_receipt(path: Path, tmp_path: Path) -> None:
    """Exit code, status, verdict, counts and findings are those of expected.toml, and the counts
    are torch's."""
    recording = recordings.read(path)
    expected = scenario_cases.case(recording.name, recording.side, Version(recording.torch))
    receipt = replay(recording, tmp_path)
    exit_code = receipt["header"]["run"]["exit_code"]
    counted = None if recording.name in EXPORTS else recording.counted
    assert scenario_cases.compare(expected, exit_code, receipt, counted) == []
