"""Intervals of medians: no false alarms in simulated noise, and most slowdowns are found."""

import math
from typing import Any

import pytest

from compilediag.compare.intervals import MIN_ROUNDS, SLOWER, compute_intervals

ROUNDS, TRIALS = 15, 200


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
    low, _ = compute_intervals(noisy_ratios(effect, rounds))
    return sum(math.expm1(bound) > SLOWER for bound in low) / len(low)


def test_false_alarms_and_power() -> None:
    """Also with the fewest pairs that are allowed; most slowdowns of 5 % are found."""
    assert share_called_slower(0.0) <= 0.01
    assert share_called_slower(0.0, MIN_ROUNDS) <= 0.01
    assert share_called_slower(0.05) >= 0.80
    assert share_called_slower(0.10) >= 0.97
