"""Timings of two commands: no false alarms in simulated noise, and what would have been found."""

import math
import sys
from pathlib import Path
from typing import Any

import pytest

from compilediag.cli import main
from compilediag.compare.gate.ab import (
    MIN_ROUNDS,
    ROUNDS,
    SLOWER,
    CommandRun,
    compare_times,
    compute_intervals,
)

TRIALS = 200


def noisy_ratios(effect: float, rounds: int = ROUNDS, trials: int = TRIALS) -> Any:
    """Log ratios of pairs in noise as it was assumed when the rule was chosen: 2 %, one run in
    twenty half as slow again, and a drift of 4 % that both commands of a pair share."""
    numpy = pytest.importorskip("numpy")
    pytest.importorskip("scipy", minversion="1.15")
    random = numpy.random.default_rng(7)
    drift = 0.04 * numpy.sin(numpy.linspace(0, 6, rounds) + 6 * random.random((trials, 1)))

    def runs(seconds: float) -> Any:
        noise = 1 + 0.02 * random.standard_normal((trials, rounds))
        outliers = numpy.where(random.random((trials, rounds)) < 0.05, 1.5, 1.0)
        return seconds * noise * (1 + drift) * outliers

    return numpy.log(runs(10 * (1 + effect)) / runs(10))


def share_called_slower(effect: float, rounds: int = ROUNDS) -> float:
    low, _, _ = compute_intervals(noisy_ratios(effect, rounds))
    return sum(math.expm1(bound) > SLOWER for bound in low) / len(low)


def test_false_alarms_and_power() -> None:
    """Also with the fewest pairs that are allowed; most slowdowns of 5 % are found."""
    assert share_called_slower(0.0) <= 0.01
    assert share_called_slower(0.0, MIN_ROUNDS) <= 0.01
    assert share_called_slower(0.05) >= 0.80
    assert share_called_slower(0.10) >= 0.97


def test_what_would_have_been_found_is_found() -> None:
    """The slowdown that is reported as findable, put into other noise of the same kind, is found
    about four times in five."""
    ratios = noisy_ratios(0.0)
    low, _, error = compute_intervals(ratios)
    middles = sorted(
        math.log1p(SLOWER) + float(sorted(row)[len(row) // 2]) - bound + 0.84162 * spread
        for row, bound, spread in zip(ratios, low, error, strict=True)
    )
    assert 0.65 <= share_called_slower(math.expm1(middles[len(middles) // 2])) <= 0.97


def samples(*seconds: float) -> list[CommandRun]:
    return [CommandRun(value / 2, value) for value in seconds]


def test_a_clear_slowdown() -> None:
    """Each clock with its medians, change, bounds, and what would have been found."""
    pytest.importorskip("scipy", minversion="1.15")
    steady = [1.0 + 0.001 * (number % 3) for number in range(15)]
    cpu, wall = compare_times(samples(*steady), samples(*(1.2 * value for value in steady)))
    assert (cpu.clock, wall.clock) == ("CPU", "wall")
    assert (cpu.a_s, wall.a_s) == (0.5005, 1.001)
    assert wall.change == pytest.approx(0.2)
    assert wall.low <= wall.change <= wall.high
    assert wall.slower
    assert SLOWER <= wall.smallest < 0.02


def test_a_clock_that_saw_nothing_is_left_out() -> None:
    """A command too short for the CPU clock has no ratio."""
    pytest.importorskip("scipy", minversion="1.15")
    runs = [CommandRun(0.0, 1.0)] * 15
    assert [item.clock for item in compare_times(runs, runs)] == ["wall"]


def test_without_scipy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    """One sentence says what to install, before anything is run."""
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    monkeypatch.chdir(tmp_path)
    assert main(["gate", "--ab", "touch ran", "touch ran"]) == 2
    assert "pip install 'compilediag[stats]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("factor", "code"), [(0.5, 0), (1.0, 0), (2.0, 3)])
def test_the_command(factor: float, code: int, monkeypatch: Any, capsys: Any) -> None:
    """The verdict decides the exit code; both clocks and the power are told."""
    pytest.importorskip("scipy", minversion="1.15")

    def fake(
        a: str, b: str, rounds: int, progress: Any
    ) -> tuple[list[CommandRun], list[CommandRun]]:
        assert (a, b, rounds) == ("old", "new", 9)
        return samples(*[1.0] * rounds), samples(*[factor] * rounds)

    monkeypatch.setattr("compilediag.runs.tools.ab.measure", fake)
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["gate", "--ab", "old", "new", "--rounds", "9"]) == code
    told = capsys.readouterr().out
    assert ("B is slower (CPU and wall time)" in told) == bool(code)
    assert "a slowdown of 1.0% would have been found four times in five" in told
