"""A comparison of timings of two commands, measured in turns: whether B is slower than A, and the
smallest slowdown that would have been found.

A paired bootstrap of the median log ratio. Pairs are neighbours in time, so that a machine that
grows slower meanwhile slows both; the median does not mind a few outliers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

from compilediag.errors import UsageError

ROUNDS = 15
MIN_ROUNDS = 8  #: With fewer pairs the interval of a median promises more than it holds.
SLOWER = 0.01
"""B counts as slower where the lower bound is above this; less is within what any change costs."""
LEVEL = 0.98  #: Of the two-sided interval: a false alarm at most once in a hundred.
RESAMPLES = 999
_SEED = 20_261_121  #: The same timings get the same verdict.
POWER = 0.8  #: The share of slowdowns of the size `found` that this many pairs find.


class CommandRun(NamedTuple):
    """One run of a command, with its children."""

    cpu_s: float
    wall_s: float


class ClockComparison(NamedTuple):
    """One clock of both commands. Ratios are changes: 0.05 is B taking 5 % longer than A."""

    clock: str
    a_s: float  #: Median of A.
    b_s: float
    change: float  #: Median of the pairs' ratios, less one.
    low: float
    high: float  #: Bounds of the change.
    smallest: float  #: The smallest slowdown that would have been found, four times in five.

    @property
    def slower(self) -> bool:
        """True if B takes longer than A by more than `SLOWER`, even at the lower bound."""
        return self.low > SLOWER


def compare_times(a: Sequence[CommandRun], b: Sequence[CommandRun]) -> tuple[ClockComparison, ...]:
    """Compare CPU and wall seconds, pair by pair, but for a clock that saw nothing in some run.

    Raises:
        UsageError: scipy is not installed.
    """
    from statistics import NormalDist, median

    clocks = (
        ("CPU", [run.cpu_s for run in a], [run.cpu_s for run in b]),
        ("wall", [run.wall_s for run in a], [run.wall_s for run in b]),
    )
    comparisons: list[ClockComparison] = []
    for clock, of_a, of_b in clocks:
        if min((*of_a, *of_b)) <= 0:
            continue
        ratios = [math.log(right / left) for left, right in zip(of_a, of_b, strict=True)]
        (low,), (high,), (error,) = compute_intervals([ratios])
        middle = median(ratios)
        # Moving every ratio moves the interval with it: the bound lies this far below the median.
        smallest = math.log1p(SLOWER) + (middle - low) + NormalDist().inv_cdf(POWER) * error
        changes = map(math.expm1, (middle, low, high, smallest))
        comparisons.append(ClockComparison(clock, median(of_a), median(of_b), *changes))
    return tuple(comparisons)


def compute_intervals(
    rows: Sequence[Sequence[float]],
) -> tuple[Sequence[float], Sequence[float], Sequence[float]]:
    """Compute bounds of each row's median, and its standard error, by the percentile bootstrap.

    Returns:
        Lower bounds, upper bounds and standard errors: one of each a row, in the unit of the rows.

    Raises:
        UsageError: scipy is not installed.
    """
    stats, numpy = require_scipy()
    result = stats.bootstrap(
        (numpy.asarray(rows),),
        numpy.median,
        axis=1,
        n_resamples=RESAMPLES,
        batch=100,
        confidence_level=LEVEL,
        method="percentile",
        rng=numpy.random.default_rng(_SEED),
    )
    bounds = result.confidence_interval
    return bounds.low.tolist(), bounds.high.tolist(), result.standard_error.tolist()


def require_scipy() -> tuple[Any, Any]:
    """Import scipy.stats and numpy.

    Raises:
        UsageError: scipy is not installed.
    """
    try:
        return import_module("scipy.stats"), import_module("numpy")
    except ImportError as error:
        raise UsageError(
            "intervals (gate --ab, measure against-eager) need scipy, and it is not installed: "
            "pip install 'compilediag[stats]'"
        ) from error
