"""Rhythms in step times: planted ones are found, and none is found in noise of any shape."""

import random
from collections.abc import Callable

import pytest

from compilediag.extensions.cadence import periods
from compilediag.extensions.cadence.periods import compute_longest_period, find_offset, find_periods

NOISES: dict[str, Callable[[random.Random], float]] = {
    "normal": lambda chance: chance.gauss(0, 0.2e-3),
    "skewed": lambda chance: 0.2e-3 * chance.lognormvariate(0, 1),
    "outliers": lambda chance: 5e-3 if chance.random() < 0.1 else chance.gauss(0, 0.1e-3),
    "many outliers": lambda chance: 5e-3 if chance.random() < 0.35 else chance.gauss(0, 0.1e-3),
    "constant": lambda chance: 0.0,
}


def steps(seed: int, noise: str, count: int = 60, *rhythms: tuple[int, int, float]) -> list[float]:
    """Step times of 10 ms with noise, and of each rhythm (period, first, extra) its spikes."""
    chance = random.Random(seed)
    values = [10e-3 + NOISES[noise](chance) for _ in range(count)]
    for period, first, extra in rhythms:
        for index in range(first, count, period):
            values[index] += extra
    return values


@pytest.mark.parametrize("noise", NOISES)
def test_noise_has_no_rhythm(noise: str) -> None:
    """A hundred runs of noise, of which one may be taken for a rhythm; allowed is twice that."""
    assert sum(bool(find_periods(steps(seed, noise))) for seed in range(100)) <= 2


@pytest.mark.parametrize("noise", ["normal", "skewed", "outliers"])
@pytest.mark.parametrize(("period", "first"), [(2, 1), (4, 0), (5, 3), (7, 6)])
def test_a_planted_rhythm_is_found(noise: str, period: int, first: int) -> None:
    """Period, offset and size, whatever the noise is like."""
    found = find_periods(steps(1, noise, 60, (period, first, 20e-3)))
    assert [(rhythm.period, rhythm.first) for rhythm in found] == [(period, first)]
    assert found[0].extra_s == pytest.approx(20e-3, rel=0.1)
    assert found[0].count == len(range(first, 60, period))


@pytest.mark.parametrize(("period", "first"), [(12, 2), (15, 14)])
def test_four_firings_are_enough_where_nothing_else_spikes(period: int, first: int) -> None:
    """Where something else does, they may not be."""
    planted = (period, first, 20e-3)
    found = find_periods(steps(1, "normal", 60, planted))
    assert [(rhythm.period, rhythm.first) for rhythm in found] == [(period, first)]


def test_two_rhythms_that_meet_are_both_found() -> None:
    """At the steps where they meet both are paid."""
    found = find_periods(steps(2, "normal", 80, (4, 0, 20e-3), (6, 0, 8e-3)))
    assert {(rhythm.period, rhythm.first) for rhythm in found} == {(4, 0), (6, 0)}


def test_steps_taken_for_a_meeting_must_cost_like_one() -> None:
    """Spikes at 6, 18, 30... beside a rhythm of 4 are a rhythm of 12, not of 6: where one of 6
    would meet the one of 4, nothing more is paid."""
    found = find_periods(steps(3, "normal", 100, (4, 0, 20e-3), (12, 6, 20e-3)))
    assert {(rhythm.period, rhythm.first) for rhythm in found} == {(4, 0), (12, 6)}


def test_three_spikes_are_no_rhythm() -> None:
    """Evenly spaced or not: three of unknown period are too often chance."""
    assert find_periods(steps(4, "normal", 60, (20, 5, 50e-3))) == []
    assert compute_longest_period(60) == 15


def test_one_disturbed_firing_in_eight_does_not_hide_a_rhythm() -> None:
    """A spike that is missing, as when a metric was skipped once."""
    values = steps(5, "normal", 80, (5, 2, 20e-3))
    values[22] = 10e-3
    assert [(r.period, r.first, r.count) for r in find_periods(values)] == [(5, 2, 15)]


@pytest.mark.parametrize("values", [[], [1e-3], [0.0] * 50, [1e-3, 2e-3, 1e-3]])
def test_few_or_equal_steps_have_no_rhythm(values: list[float]) -> None:
    """Nothing to compare is no error."""
    assert find_periods(values) == []
    assert find_offset(values, 3) is None


def test_a_machine_that_is_slower_for_a_while_hides_nothing() -> None:
    """Half of the steps take five times as long: a rhythm in them is found all the same, and the
    change itself is none."""
    slow = [0.0 if index < 30 else 40e-3 for index in range(60)]
    for rhythms, expected in (((), []), (((6, 2, 12e-3),), [(6, 2)])):
        values = [a + b for a, b in zip(steps(9, "normal", 60, *rhythms), slow, strict=True)]
        assert [(rhythm.period, rhythm.first) for rhythm in find_periods(values)] == expected


def test_steps_of_a_long_run_beyond_the_limit_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found in the others is found: the work does not grow with the run."""
    monkeypatch.setattr(periods, "MAX_STEPS", 300)
    values = [*steps(7, "normal", 300, (60, 20, 30e-3)), *steps(8, "normal", 300, (7, 0, 90e-3))]
    assert [(r.period, r.first) for r in find_periods(values)] == [(60, 20)]
    assert find_offset(values, 60) == find_offset(values[:300], 60)
    assert compute_longest_period(3000) == compute_longest_period(300)
