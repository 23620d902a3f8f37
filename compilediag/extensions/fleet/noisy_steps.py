"""Lasting steps of a noisy series: proposed, tested by scipy's rank sums, and located.

The ranks of the series, and again those of each part, are partitioned at the least cost (Jackson
and others, IEEE Signal Processing Letters 12, 2005, 105-108), with a penalty so low that every step
which could pass the test is proposed. Each is then tested between its neighbours (Wilcoxon, Mann
and Whitney), and the most doubtful is dropped, until chance explains none of the rest and none is
too small to matter. Each probability is multiplied by the number of places in the series
(Bonferroni), and by two: half of the permitted error goes to a single step, half to those between
others, for which it is divided once more by how often a series can be halved. Only ranks count: no
distribution of the noise is assumed, and an outlier is one rank. Ties are broken by keys that have
nothing to do with the order, which keeps every order equally likely where nothing changed.

To place a step, both levels are taken as the centre of their side. Moving the step over a value
costs what the value lies farther from its new level than from its old one, in squared deviations of
the noise, each at most `FARTHEST` squared, so that an outlier moves nothing. The step is where the
cost is least; the range is every index that costs at most `WITHIN` more, which for normal noise is
a 95 % confidence set: the index maximises a likelihood, twice the logarithm of its ratio is the
larger of two exponential numbers' doubles (Yao, Annals of Statistics 15, 1987, 1321-1328), and
inverting the ratio gives the set (Eo and Morley, Quantitative Economics 6, 2015, 463-497).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module
from itertools import count, pairwise
from typing import Any, NamedTuple

from compilediag.errors import UsageError

SHORTEST = 4
"""Values a new level must hold to be called lasting."""

WITHIN = 7.35
"""Twice the logarithm of the likelihood ratio: (1 - exp(-x / 2)) ** 2 is 0.95 for it."""

FARTHEST = 4.0
"""Standard deviations; what lies farther from a level costs no more."""

MAX_CORRELATION = 0.9

_PENALTY = 9.0
"""Of a step, in squared deviations of its rank sum; the four newest values have 11 at most."""

_FEW = 12
"""Up to so many values on one side their rank sum is tested exactly, in series of `_EXACT`: the
normal distribution gives them too high a probability."""
_EXACT = 1000


class StepRule(NamedTuple):
    """The conditions under which a change counts as a step."""

    chance: float = 0.01
    """Highest probability of any step where nothing changed."""
    min_change: float = 0.0
    """Smaller changes are left out: a share of the level before, or points of a share of yes."""
    shares: bool = False
    """The values are yes (1) and no (0); their level is a mean, and changes are in points."""


class LevelStep(NamedTuple):
    """A series changed its level for good, or until the next step."""

    at: int
    """Index of the first value at the new level."""
    earliest: int
    latest: int
    """Where it may have begun instead, with 95 % confidence."""
    before: float
    after: float
    """The levels: medians, or means of shares."""
    chance: float


def find_steps(
    values: Sequence[float], ties: Sequence[int], rule: StepRule
) -> tuple[LevelStep, ...]:
    """Find every lasting step of a series, in order.

    Args:
        values: the series, finite numbers, `compute_min_values` of them or more.
        ties: a key for each value that has nothing to do with its position, for equal values.
        rule: what counts as a step.

    Raises:
        UsageError: scipy is not installed.
    """
    stats, numpy = _require_libraries()
    size, series = len(values), numpy.asarray(values, float)
    ranks = numpy.argsort(numpy.lexsort((ties, series)))
    splits = _propose(numpy, ranks)
    rest = numpy.concatenate([part - part.mean() for part in numpy.split(ranks, splits)])
    worth = _compute_worth(float(rest[1:] @ rest[:-1] / (rest @ rest)), size, len(splits) + 1)
    while splits:
        steps: list[LevelStep] = []
        low = 0
        for split, high in zip(splits, (*splits[1:], size), strict=True):
            # Each between its neighbours, the one before it where it was located.
            step = _locate(numpy, series[low:high], split - low, rule, worth)
            at = low + step.at
            few = min(at - low, high - at)
            method = "exact" if few <= _FEW and high - low <= _EXACT else "asymptotic"
            chance = stats.mannwhitneyu(ranks[low:at], ranks[at:high], method=method).pvalue
            deviations = stats.norm.isf(chance / 2) * math.sqrt(worth)
            chance = 2 * float(stats.norm.sf(deviations)) * _count_tests(size)
            if high - low < size:
                chance *= max(math.log2(size / SHORTEST) - 1, 1.0)
            places = {"at": at, "earliest": low + step.earliest, "latest": low + step.latest}
            steps.append(step._replace(**places, chance=min(1.0, chance)))
            low = at
        weakest = max(steps, key=lambda step: _compute_doubt(step, rule))
        if _compute_doubt(weakest, rule) <= 1:
            return tuple(steps)
        splits = [step.at for step in steps if step is not weakest]
    return ()


def _propose(numpy: Any, values: Any) -> list[int]:
    """Propose where there may be steps: in the whole, and again within each part, whose own ranks
    show what a larger step elsewhere hides."""
    size = len(values)
    if size < 2 * SHORTEST:
        return []
    ranks = numpy.argsort(numpy.argsort(values))
    splits = _partition(numpy, ranks, _PENALTY * float(ranks.var()))
    for low, high in pairwise((0, *splits, size)) if splits else ():
        splits += [low + split for split in _propose(numpy, values[low:high])]
    return sorted(splits)


def _partition(numpy: Any, values: Any, penalty: float) -> list[int]:
    """Partition values at the least squared deviations from the means of parts of `SHORTEST` values
    or more, each but the first at a penalty; the indexes where parts begin."""
    sums = numpy.concatenate([[0.0], values.cumsum()])
    gains, lasts = numpy.full(len(sums), -numpy.inf), [0] * len(sums)
    gains[0] = 0.0
    for end in range(SHORTEST, len(sums)):
        starts = numpy.arange(end - SHORTEST + 1)
        options = gains[starts] + (sums[end] - sums[starts]) ** 2 / (end - starts) - penalty
        lasts[end] = int(options.argmax())
        gains[end] = options[lasts[end]]
    splits, begin = list[int](), lasts[-1]
    while begin:
        splits.append(begin)
        begin = lasts[begin]
    return splits[::-1]


def _compute_worth(correlation: float, size: int, parts: int) -> float:
    """Compute how many independent values one of the series is worth: (1 - r) / (1 + r) for a
    correlation r of neighbours.

    It was measured around the means of the parts, which takes (1 + 3 r) / n from that of n values
    (Marriott and Pope, Biometrika 41, 1954, 390-402). Less the standard error that independent
    values would have: what chance alone shows costs nothing.
    """
    correlation += (1 + 3 * max(correlation, 0.0)) * parts / size - 1 / math.sqrt(size)
    correlation = min(max(correlation, 0.0), MAX_CORRELATION)
    return (1 - correlation) / (1 + correlation)


def _require_libraries() -> tuple[Any, Any]:
    """Import scipy.stats and numpy."""
    try:
        return import_module("scipy.stats"), import_module("numpy")
    except ImportError as error:
        raise UsageError(
            "trends of timings, memory and checks need scipy, and it is not installed: "
            "pip install 'compilediag[stats]'; counts can do without: --measure recompiles"
        ) from error


def _locate(numpy: Any, values: Any, at: int, rule: StepRule, worth: float) -> LevelStep:
    """Locate the one step in `values` that is somewhere near `at`, by indexes of `values`.

    Args:
        numpy: the library.
        values: the series, with one step.
        at: a first guess.
        rule: what counts as a step.
        worth: the share of the values that are independent; fewer widen the range.
    """
    centre = numpy.mean if rule.shares else numpy.median
    levels = centre(values[:at]), centre(values[at:])
    before, after = (numpy.abs(values - level) for level in levels)
    rest = numpy.concatenate([before[:at], after[at:]])
    # The median absolute deviation of the normal distribution is 1 / 1.4826 of its deviation.
    spread = math.sqrt((rest**2).mean()) if rule.shares else 1.4826 * numpy.median(rest)
    noise = max(spread, 1e-9 * abs(numpy.asarray(levels)).max(), 1e-300)
    before, after = (numpy.minimum(far / noise, FARTHEST) ** 2 for far in (before, after))
    costs = numpy.cumsum(before - after)  # of the index behind each value
    at = SHORTEST + int(costs[SHORTEST - 1 : len(values) - SHORTEST].argmin())
    possible = 1 + numpy.flatnonzero(costs[:-1] <= costs[at - 1] + WITHIN / worth)
    first, last = int(possible[0]), int(possible[-1])
    return LevelStep(at, first, last, float(centre(values[:at])), float(centre(values[at:])), 1.0)


def _compute_doubt(step: LevelStep, rule: StepRule) -> float:
    """Compute the doubt in a step: above 1 where it is too small or explained by chance; the step
    with the largest is dropped first."""
    if step.chance > rule.chance:
        return 2 + step.chance
    size = abs(step.after - step.before)
    if not rule.shares:
        size = size / abs(step.before) if step.before else float(bool(size))
    return rule.min_change / size if size else 2.0


def _count_tests(size: int) -> int:
    """Count the tests that the error is divided among: the places, twice, as parts get a half."""
    return 2 * (size - 2 * SHORTEST + 1)


def compute_min_values(chance: float) -> int:
    """Compute how many values there must be for the clearest step there is, in the middle of them,
    to be one that chance explains with a probability of `chance` at most."""

    def compute_best_chance(size: int) -> float:
        return 2 / math.comb(size, size // 2) * _count_tests(size)

    return next(size for size in count(2 * SHORTEST) if compute_best_chance(size) <= chance)
