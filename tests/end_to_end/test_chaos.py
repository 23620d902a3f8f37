"""The campaigns of `make chaos`, a trial of each: they start, disturb, and find nothing wrong."""

import sys
from pathlib import Path

import pytest
from command_line import captured

CHAOS = Path(__file__).parents[2] / "tools" / "chaos"
CAMPAIGNS = (
    "kill-target",
    "kill-supervisor",
    "disk-full",
    "folder-removed",
    "clock-jumps",
    "threads",
    "forks",
    "spawns",
)
"""Without those that mount a file system or start eight ranks."""


@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_one_trial(campaign: str) -> None:
    """Exit code, receipt, counts and what is left behind are as they must be."""
    words = (str(CHAOS), "--share", "0.001", "--jobs", "1", campaign)
    ran = captured(sys.executable, *words, timeout=900)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 trials, 0 failed" in ran.stdout


def test_a_false_tick_would_be_found(tmp_path: Path) -> None:
    """The checks fail on what they are there for."""
    code = f"""
import sys
sys.path.insert(0, {str(CHAOS)!r})
from pathlib import Path
from checks import Trial, problems
from compilediag.receipt.file import read_receipt, write_receipt
from msgspec.structs import replace
folder = Path({str(tmp_path)!r})
receipt = read_receipt({str(CHAOS.parents[1] / "tests" / "data" / "receipt-example.json")!r})
write_receipt(replace(receipt, verdict="clean"), folder / "receipt.json")
(folder / "left.tmp").touch()
found = problems(Trial("t", folder, folder, 1, (0,), "✓ clean", recompiles=0))
print(len(found), *found, sep="\\n")
"""
    ran = captured(sys.executable, "-c", code, timeout=300, check=True)
    for problem in ("exit code 1", "called clean", "left behind", "recompiles of 0"):
        assert problem in ran.stdout, ran.stdout
