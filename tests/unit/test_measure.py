"""The arithmetic of the benchmarks: order of rounds, intervals, and what counts as an answer."""

from pathlib import Path

import imported_file
import pytest

measure = imported_file.load(Path(__file__).parents[1] / "benchmarks" / "measure.py")


def test_rounds_are_interleaved() -> None:
    """The order alternates, pairs keep A before B, and the first round is dropped."""
    order: list[str] = []

    def a() -> float:
        order.append("a")
        return float(len(order))

    def b() -> float:
        order.append("b")
        return float(len(order))

    assert measure.interleave(a, b, 2) == [(3.0, 4.0), (6.0, 5.0)]
    assert "".join(order) == "ababba"


def test_a_constant_ratio_is_found_exactly() -> None:
    """A drift that meets both variants leaves the ratio and a narrow interval."""
    found = measure.change([(drift, drift * 1.02) for drift in (1.0, 1.5, 0.9, 3.0, 1.1, 1.0, 2.0)])
    assert found.base == 1.1
    assert (found.median, found.low, found.high) == pytest.approx((0.02, 0.02, 0.02))


def test_noise_widens_the_interval() -> None:
    """The interval holds the median and spans the values around it; it is the same every time."""
    pairs = [(1.0, value) for value in (0.9, 0.95, 1.0, 1.01, 1.02, 1.1, 1.3)]
    found = measure.change(pairs)
    assert found.low < found.median < found.high
    assert found == measure.change(pairs)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(-0.01, 0.005, "holds"), (0.02, 0.03, "fails"), (-0.02, 0.05, "not resolved")],
)
def test_verdict(low: float, high: float, verdict: str) -> None:
    """Only an interval on one side of the goal is an answer."""
    assert measure.Change(1.0, (low + high) / 2, low, high).against(0.01) == verdict
