"""Intervals of medians of what was measured in pairs, by the percentile bootstrap.

Pairs are neighbours in time, so that a machine that grows slower meanwhile slows both; the median
does not mind a few outliers.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from compilediag.errors import UsageError

MIN_ROUNDS = 8  #: With fewer pairs the interval of a median promises more than it holds.
SLOWER = 0.01
"""What takes longer by less is as fast: less is within what any change costs."""
LEVEL = 0.98  #: Of the two-sided interval: a false alarm at most once in a hundred.
RESAMPLES = 999
_SEED = 20_261_121  #: The same timings get the same verdict.


def compute_intervals(
    rows: Sequence[Sequence[float]],
) -> tuple[Sequence[float], Sequence[float]]:
    """Compute bounds of each row's median by the percentile bootstrap.

    Returns:
        Lower bounds and upper bounds: one of each a row, in the unit of the rows.

    Raises:
        UsageError: scipy is not installed.
    """
    stats, numpy = require_scipy()
    bounds = stats.bootstrap(
        (numpy.asarray(rows),),
        numpy.median,
        axis=1,
        n_resamples=RESAMPLES,
        batch=100,
        confidence_level=LEVEL,
        method="percentile",
        rng=numpy.random.default_rng(_SEED),
    ).confidence_interval
    return bounds.low.tolist(), bounds.high.tolist()


def require_scipy() -> tuple[Any, Any]:
    """Import scipy.stats and numpy.

    Raises:
        UsageError: scipy is not installed.
    """
    try:
        return import_module("scipy.stats"), import_module("numpy")
    except ImportError as error:
        raise UsageError(
            "intervals (measure against-eager) need scipy, and it is not installed: "
            "pip install 'compilediag[stats]'"
        ) from error
