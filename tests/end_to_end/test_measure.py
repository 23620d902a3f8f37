"""The arithmetic of the benchmarks: order of rounds, intervals, and what counts as an answer."""

from __future__ import annotations

import sys
from pathlib import Path

import imported_file
import pytest

measure = imported_file.load(Path(__file__).parents[1] / "benchmarks" / "measure.py")


def test_a_failing_program_is_no_measurement() -> None:
    """A child that fails raises with what it said, instead of being timed."""
    with pytest.raises(RuntimeError, match="ended with 3:\nbroken"):
        measure.cpu_seconds(
            [sys.executable, "-c", "import sys; print('broken', file=sys.stderr); sys.exit(3)"]
        )
