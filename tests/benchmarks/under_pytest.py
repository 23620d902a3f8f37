"""What the pytest plugin costs: a suite that does not use it, and a test that it watches."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from bench import Bench, Benchmark, Row, environment, share
from measure import change, cpu_seconds, instructions, interleave

SUITE = """
import pytest

@pytest.mark.parametrize("number", range(200))
def test_it(number):
    assert number >= 0
"""
UNUSED_GOAL_MS = 5.0
LEDGER_GOAL = 0.03


def pytest_unused(bench: Bench) -> Iterator[Row]:
    """A suite of 200 tests without torch, with the plugin and without."""
    suite = bench.folder / "test_suite.py"
    suite.write_text(SUITE)
    plain = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(suite)]
    plain += ["--rootdir", str(bench.folder)]
    bare = [*plain, "-p", "no:compilediag"]
    without = lambda: cpu_seconds(bare, environment())
    found = change(interleave(without, lambda: cpu_seconds(plain, environment()), bench.rounds))
    middle, low, high = (found.base * part * 1e3 for part in (found.median, found.low, found.high))
    verdict = "holds" if high <= UNUSED_GOAL_MS else "not resolved"
    yield Row(
        "pytest, 200 tests that do not use the plugin",
        f"{found.base * 1e3:.0f} ms",
        f"{middle:+.1f} ms [{low:+.1f}, {high:+.1f}]",
        f"≤ {UNUSED_GOAL_MS:.0f} ms",
        "fails" if low > UNUSED_GOAL_MS else verdict,
    )
    counts = instructions(bare, environment()), instructions(plain, environment())
    if counts[0] is not None and counts[1] is not None:
        part = counts[1] / counts[0] - 1
        tax = found.base * part * 1e3
        yield Row(
            "the same, by instructions counted",
            f"{counts[0] / 1e6:,.0f} million",
            f"{part:+.2%}: {tax:+.1f} ms",
            f"≤ {UNUSED_GOAL_MS:.0f} ms",
            "holds" if tax <= UNUSED_GOAL_MS else "fails",
        )


def pytest_ledger(bench: Bench) -> Iterator[Row]:
    """Tests that compile, with `--compilediag` and without, in turn in one process."""
    cases = {"inductor": ("inductor", "1"), "eager backend, Dynamo only": ("eager", "10")}
    for name, size in cases.items():
        found = bench.in_turn("pytest_in_turn.py", *size, str(bench.rounds))
        yield share(f"pytest --compilediag, {name}", found, LEDGER_GOAL, 1, "s")


BENCHMARKS: dict[str, Benchmark] = {"pytest_unused": pytest_unused, "pytest_ledger": pytest_ledger}
