"""Series of numbers: exact figures, what is not finite, and a median in bounded memory."""

import math
import random
import statistics
from collections import Counter

import pytest

from compilediag_harness.extensions.tracker.tracked_run import CHUNK, MAX_SAMPLE, MetricSeries
from compilediag_harness.wire import TrackedMetric


def summed_up(*values: float) -> TrackedMetric:
    """The figures of a series."""
    series = MetricSeries()
    for value in values:
        series.add(value)
    return series.summarize("x")


def test_nothing() -> None:
    """Without a number nothing is measured, and nothing is zero."""
    assert summed_up() == TrackedMetric("x", 0, None, None, None, None, None, 0, 0)


@pytest.mark.parametrize("count", [1, 2, 3, CHUNK - 1, CHUNK, CHUNK + 1, MAX_SAMPLE])
def test_exact_as_long_as_all_are_kept(count: int) -> None:
    """The figures of the standard library, on both sides of each limit."""
    draw = random.Random(count)
    values = [draw.gauss(0.0, 1e3) for _ in range(count)]
    found = summed_up(*values)
    assert found.mean == pytest.approx(statistics.fmean(values), rel=1e-12)
    assert found.median == statistics.median(values)
    assert (found.min, found.max, found.last) == (min(values), max(values), values[-1])
    assert (found.count, found.median_of) == (count, count)


def test_sums_beyond_a_float() -> None:
    """The largest numbers have a median; where their sum has no float there is no mean."""
    found = summed_up(1.7e308, 1.7e308, 1.6e308, 1.5e308)
    assert found.median == pytest.approx(1.65e308)
    assert (found.mean, found.count, found.not_finite) == (None, 4, 0)


def test_a_mean_lies_between_the_extremes() -> None:
    """Rounding does not put it outside."""
    found = summed_up(0.1, 0.1, 0.1)
    assert found.min == found.mean == found.max == 0.1


def test_a_long_series_is_sampled_fairly() -> None:
    """Beyond what is kept the median is that of a sample, of which each tenth of the series has
    about a tenth: of numbers that rise evenly it is in the middle. The same numbers give the same
    figures."""
    count = 6 * MAX_SAMPLE
    series, again = MetricSeries(), MetricSeries()
    for value in range(count):
        series.add(float(value))
        again.add(float(value))
    found = series.summarize("x")
    assert (found.min, found.max, found.mean) == (0.0, count - 1.0, (count - 1) / 2)
    assert found.median_of == len(series._sample) == MAX_SAMPLE
    assert abs(found.median / count - 0.5) < 0.02
    assert again.summarize("x") == found
    tenths = Counter(int(10 * value / count) for value in series._sample)
    limit = 6 * math.sqrt(MAX_SAMPLE / 10)
    assert all(abs(tenths[part] - MAX_SAMPLE / 10) < limit for part in range(10)), tenths


def test_what_is_not_finite_is_counted_and_left_out() -> None:
    """One NaN does not make a whole run's figures NaN, and is not forgotten."""
    found = summed_up(1.0, math.nan, 3.0, math.inf, -math.inf)
    assert found == TrackedMetric("x", 2, 2.0, 2.0, 1.0, 3.0, 3.0, 2, 3)
    assert summed_up(math.nan) == TrackedMetric("x", 0, None, None, None, None, None, 0, 1)
