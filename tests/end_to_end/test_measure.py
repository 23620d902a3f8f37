"""The arithmetic of the benchmarks: order of rounds, intervals, and what counts as an answer."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parents[1] / "benchmarks" / "measure.py"
SPEC = importlib.util.spec_from_file_location("measure", PATH)
assert SPEC is not None
assert SPEC.loader is not None
measure = importlib.util.module_from_spec(SPEC)
sys.modules["measure"] = measure  # dataclasses look their module up
SPEC.loader.exec_module(measure)


def test_a_failing_program_is_no_measurement() -> None:
    """A child that fails raises with what it said, instead of being timed."""
    with pytest.raises(RuntimeError, match="ended with 3:\nbroken"):
        measure.cpu_seconds(
            [sys.executable, "-c", "import sys; print('broken', file=sys.stderr); sys.exit(3)"]
        )
