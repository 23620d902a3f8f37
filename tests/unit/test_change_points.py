"""Lasting steps: found where there are some, and hardly ever where there are none."""

import math
import random
import sys
from collections.abc import Callable, Sequence

import pytest

from compilediag.errors import UsageError
from compilediag.extensions.fleet import noisy_steps
from compilediag.extensions.fleet.trend import find_levels

SEED = 20_261_121
NOISE = 0.02

Series = Callable[[random.Random, int], list[float]]


def normal(draw: random.Random, number: int) -> list[float]:
    return [100 * (1 + NOISE * draw.gauss(0, 1)) for _ in range(number)]


def with_outliers(draw: random.Random, number: int) -> list[float]:
    """One in twenty runs takes half as long again."""
    return [value * (1.5 if draw.random() < 0.05 else 1) for value in normal(draw, number)]


def skewed(draw: random.Random, number: int) -> list[float]:
    return [100 * math.exp(draw.gauss(0, 0.5)) for _ in range(number)]


def tied(draw: random.Random, number: int) -> list[float]:
    return [float(draw.choice((1, 1, 1, 1, 1, 1, 2, 3))) for _ in range(number)]


def seldom_false(draw: random.Random, number: int) -> list[float]:
    return [float(draw.random() < 0.97) for _ in range(number)]


def alike_neighbours(draw: random.Random, number: int) -> list[float]:
    """A machine that is slower for an hour: neighbours have a correlation of 0.3."""
    values, now = [], draw.gauss(0, 1)
    for _ in range(number):
        now = 0.3 * now + math.sqrt(1 - 0.3**2) * draw.gauss(0, 1)
        values.append(100 * (1 + NOISE * now))
    return values


def found(
    draw: random.Random, values: Sequence[float], **rule: float
) -> tuple[noisy_steps.LevelStep, ...]:
    ties = [draw.getrandbits(32) for _ in values]
    return noisy_steps.find_steps(values, ties, noisy_steps.StepRule(**rule))


@pytest.mark.parametrize("series", [normal, with_outliers, skewed, tied, seldom_false])
@pytest.mark.parametrize("number", [16, 40])
def test_false_alarms_are_as_rare_as_configured(series: Series, number: int) -> None:
    """Nothing changed: of 200 series at most as many have a step as the rule allows, whatever the
    noise looks like and however many values are equal."""
    draw = random.Random(SEED)
    shares = series is seldom_false
    alarms = sum(
        bool(found(draw, series(draw, number), chance=0.01, shares=shares)) for _ in range(200)
    )
    assert alarms <= 2


def test_neighbours_that_resemble_each_other_are_no_step() -> None:
    """Noise that lasts a while is mistaken for a step in a few series of a hundred at most."""
    draw = random.Random(SEED)
    alarms = sum(bool(found(draw, alike_neighbours(draw, 60), chance=0.01)) for _ in range(100))
    assert alarms <= 3


@pytest.mark.parametrize(("size", "after"), [(0.05, 15), (0.10, 8), (0.30, 8)])
def test_steps_are_found_and_put_in_their_place(size: float, after: int) -> None:
    """A slowdown of the last few of 100 receipts, outliers among them, is found nine times in ten,
    and the receipt it began with lies in the range that is reported nineteen times in twenty."""
    draw = random.Random(SEED)
    begin, hits, covered = 100 - after, 0, 0
    for _ in range(40):
        values = with_outliers(draw, 100)
        values = [*values[:begin], *(value * (1 + size) for value in values[begin:])]
        steps = found(draw, values, chance=0.01, min_change=0.02)
        hits += bool(steps)
        covered += any(step.earliest <= begin <= step.latest for step in steps)
    assert hits >= 36
    assert covered >= 0.95 * hits


def test_a_clear_step_has_one_place() -> None:
    """Where both levels are far apart there is nothing to doubt, and the levels are exact."""
    (step,) = found(random.Random(1), [10.0, 10.2, 9.9, 10.1, 10.0] * 6 + [20.1, 19.9, 20.0] * 5)
    assert (step.at, step.earliest, step.latest) == (30, 30, 30)
    assert (step.before, step.after) == (10.0, 20.0)


def test_a_step_and_its_end_are_two() -> None:
    """What got slower and was mended later is two steps."""
    draw = random.Random(SEED)
    values = [*normal(draw, 30), *(value * 1.2 for value in normal(draw, 20)), *normal(draw, 30)]
    steps = found(draw, values)
    assert [step.at for step in steps] == [30, 50]
    assert steps[0].before == pytest.approx(steps[1].after, rel=0.02)


def test_a_large_step_is_found_where_all_else_drifts() -> None:
    """Neighbours resemble each other then, which does not hide a step of forty deviations."""
    draw = random.Random(SEED)
    for _ in range(20):
        values = [100 + number / 5 + draw.gauss(0, 1) + 40 * (number >= 30) for number in range(60)]
        assert 30 in [step.at for step in found(draw, values)]


def test_small_steps_are_left_out() -> None:
    """A change of one percent is real and left out where two are the limit."""
    draw = random.Random(SEED)
    values = [*(v / 20 + 95 for v in normal(draw, 60)), *(v / 20 + 96 for v in normal(draw, 60))]
    assert [step.at for step in found(draw, values)] == [60]
    assert found(draw, values, min_change=0.02) == ()


def test_shares_are_compared_by_their_means() -> None:
    """Runs that fail one time in two where one in fifty did are a step, in points."""
    draw = random.Random(SEED)
    values = [float(number % 50 != 0) for number in range(100)]
    values += [float(number % 2) for number in range(40)]
    (step,) = found(draw, values, shares=True, min_change=0.05)
    assert step.earliest <= 100 <= step.latest
    assert (step.before, step.after) == pytest.approx((0.98, 0.5), abs=0.03)


def test_too_short_series_have_no_steps() -> None:
    """`compute_min_values` is what is needed: the clearest step is found in most series of so many
    values, whatever their order at each level is, and in none that is shorter."""
    needed = noisy_steps.compute_min_values(0.01)
    draw = random.Random(SEED)
    for number, least, most in ((needed, 35, 50), (needed - 1, 0, 0)):
        half = number // 2
        values = [1.0] * half + [2.0] * (number - half)
        assert least <= sum(found(draw, values, chance=0.01) != () for _ in range(50)) <= most


def test_without_scipy_one_sentence_says_what_to_install(monkeypatch) -> None:
    """Counts need no library, and the message says so."""
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(
        UsageError, match=r"pip install 'compilediag\[stats\]'; .* --measure recomp"
    ):
        noisy_steps.find_steps([1.0] * 20, range(20), noisy_steps.StepRule())


def test_the_level_of_the_likelihood_ratio_is_right() -> None:
    """`WITHIN` is the 95 % point of the distribution it is taken from."""
    assert (1 - math.exp(-noisy_steps.WITHIN / 2)) ** 2 == pytest.approx(0.95, abs=0.0005)


@pytest.mark.parametrize(
    ("series", "levels", "began"),
    [
        ([0] * 5 + [3] * 3, [(0, 5, 0), (5, 8, 3)], None),
        ([0] * 5 + [3] * 2, [(0, 5, 0)], 5),
        ([0] * 5 + [3], [(0, 5, 0)], 5),
        ([2, 2, 2, 2, 1, 1, 1, 1], [(0, 4, 2), (4, 8, 1)], None),
        ([0] * 20 + [7] + [0] * 20 + [1] * 6, [(0, 41, 0), (41, 47, 1)], None),
        ([0] * 30 + [1, 0] + [2] * 6, [(0, 32, 0), (32, 38, 2)], None),
        ([4] * 3, [(0, 3, 4)], None),
        (([0] * 19 + [5]) * 3, [(0, 59, 0)], None),
    ],
    ids=str,
)
def test_lasting_counts_are_levels(series, levels, began) -> None:
    """A count that stays at another value has changed, be it by one and for three receipts; a
    single receipt changes nothing, and the newest ones are kept apart until there are enough."""
    found = find_levels(series)
    assert [tuple(level) for level in found.levels] == levels
    assert found.began == began


@pytest.mark.parametrize(
    "series", [[], [1], [1, 2], [1, 2, 3, 4] * 5, [0, 1] * 10, [3, 3, 0, 1, 2]]
)
def test_restless_counts_have_no_levels(series: list[int]) -> None:
    """Counts that differ from run to run are left to the statistics of noise."""
    assert find_levels(series) is None


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1, 0.3])
def test_strays_make_no_level(share: float) -> None:
    """Counts that stray at random, by the same value each time, are seldom a change."""
    draw = random.Random(SEED)
    alarms = 0
    for _ in range(300):
        found = find_levels([3 * (draw.random() < share) for _ in range(200)])
        alarms += found is not None and (len(found.levels) > 1)
    assert alarms <= 6
