"""Lasting steps of a noisy series: found by rank sums, and located.

A series is split at its clearest step, each part again, as long as chance explains no part; then
every step is judged once more between its neighbours, and those too small to matter are dropped.

To place a step, both levels are taken as the centre of their side. Moving the step over a value
costs what the value lies farther from its new level than from its old one, in squared deviations of
the noise, each at most `FARTHEST` squared, so that an outlier moves nothing. The step is where the
cost is least; the range is every index that costs at most `WITHIN` more, which for normal noise is
a 95 % confidence set: the index maximises a likelihood, twice the logarithm of its ratio is the
larger of two exponential numbers' doubles (Yao, Annals of Statistics 15, 1987, 1321-1328), and
inverting the ratio gives the set (Eo and Morley, Quantitative Economics 6, 2015, 463-497).

Whether there is a step anywhere is one test. Every index splits an interval in two; of
each split the rank sum is compared with what chance gives (Wilcoxon, Mann and Whitney). That is the
scan of Pettitt (Applied Statistics 28, 1979, 126-135), with each split measured by its own spread,
so that a step near the end is seen as well. Intervals are the whole series and, so that two steps
cannot hide each other, overlapping halves, quarters and so on of it (the seeded intervals of
Kovacs, Buhlmann, Li and Munk, Biometrika 110, 2023, 249-256).

The probabilities are multiplied by the number of splits (Bonferroni): half of the permitted error
goes to the whole series, the other half to the shorter intervals. Only ranks count: no distribution
of the noise is assumed, and an outlier is one rank. Ties are broken by keys that have nothing to do
with the order, which keeps every order equally likely where nothing changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, count, pairwise
from statistics import NormalDist, fmean, median
from typing import NamedTuple

FEW = 12
"""Up to so many values on one side the tail is that of a sum of uniform numbers, not the normal."""

MAX_CORRELATION = 0.9


class Split(NamedTuple):
    """A split of a series."""

    at: int
    """Index of the first value behind it."""
    low: int
    high: int
    """The interval in which it is the clearest."""
    chance: float
    """Bound on the probability of a split as clear as this, anywhere, where nothing changed."""


WITHIN = 7.35
"""Twice the logarithm of the likelihood ratio: (1 - exp(-x / 2)) ** 2 is 0.95 for it."""

FARTHEST = 4.0
"""Standard deviations; what lies farther from a level costs no more."""

_ROUNDS = 5
_MAD_TO_DEVIATION = 1.4826
"""Of the normal distribution: its deviation is so many times its median absolute one."""


SHORTEST = 4
"""Values a new level must hold to be called lasting."""


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
        values: the series, finite numbers.
        ties: a key for each value that has nothing to do with its position, for equal values.
        rule: what counts as a step.
    """
    # Indexes at which there may be steps, in order.
    splits: list[int] = []
    waiting = [(0, len(values))]
    while waiting:
        low, high = waiting.pop()
        split = find_split(values[low:high], ties[low:high])
        if split is None or split.chance > rule.chance:
            continue
        begin = low + split.low
        part = values[begin : low + split.high]
        at = begin + locate(part, split.at - split.low, shares=rule.shares)[0]
        splits.append(at)
        waiting += [(low, at), (at, high)]
    splits.sort()
    correlation = compute_correlation(compute_ranks(values, ties), splits)
    centre = fmean if rule.shares else median
    while splits:
        # Each between its neighbours.
        bounds = zip((0, *splits), splits, (*splits[1:], len(values)), strict=False)
        level_steps: list[LevelStep] = []
        for low, at, high in bounds:
            part = values[low:high]
            place = locate(part, at - low, shares=rule.shares, correlation=correlation)
            ranks = compute_ranks(part, ties[low:high])
            level_steps.append(
                LevelStep(
                    *(low + index for index in place),
                    before=centre(part[: place[0]]),
                    after=centre(part[place[0] :]),
                    chance=compute_chance(ranks, place[0], correlation),
                )
            )
        weakest = max(level_steps, key=lambda step: _compute_doubt(step, rule))
        if _compute_doubt(weakest, rule) <= 1:
            return tuple(level_steps)
        splits = [step.at for step in level_steps if step is not weakest]
    return ()


def _compute_doubt(step: LevelStep, rule: StepRule) -> float:
    """Compute the doubt in a step: above 1 where it is too small or explained by chance; the step
    with the largest is dropped first."""
    if step.chance > rule.chance:
        return 2 + step.chance
    size = abs(step.after - step.before)
    if not rule.shares:
        size = size / abs(step.before) if step.before else float(bool(size))
    return rule.min_change / size if size else 2.0


def locate(
    values: Sequence[float], at: int, *, shares: bool = False, correlation: float = 0.0
) -> tuple[int, int, int]:
    """Locate the one step in `values` that is somewhere near `at`: the index of the first value at
    the new level, the earliest and the latest that it may be.

    Args:
        values: the series, with one step.
        at: a first guess.
        shares: the values are yes (1) and no (0), whose level is a mean.
        correlation: that of neighbours, which widens the range.
    """
    costs: list[float] = []
    for _ in range(_ROUNDS):
        # What each index costs, with the levels of the sides of `at`.
        centre = fmean if shares else median
        levels = centre(values[:at]), centre(values[at:])
        rest = [abs(value - levels[index >= at]) for index, value in enumerate(values)]
        if shares:
            noise = math.sqrt(fmean(value * value for value in rest))
        else:
            noise = _MAD_TO_DEVIATION * median(rest)
        noise = max(noise, 1e-9 * max(map(abs, levels)), 1e-300)
        before, after = (
            list(
                accumulate(
                    (min(abs(value - level) / noise, FARTHEST) ** 2 for value in values),
                    initial=0.0,
                )
            )
            for level in levels
        )
        costs = [left + after[-1] - right for left, right in zip(before, after, strict=True)]
        best = min(range(SHORTEST, len(values) - SHORTEST + 1), key=costs.__getitem__)
        if best == at:
            break
        at = best
    bound = costs[at] + WITHIN * (1 + correlation) / (1 - correlation)
    possible = [index for index in range(1, len(values)) if costs[index] <= bound]
    return at, min(possible[0], at), max(possible[-1], at)


def compute_ranks(values: Sequence[float], ties: Sequence[int]) -> list[int]:
    """Compute the rank of each value, 1 for the smallest; equal values in the order of `ties`."""
    ranks = [0] * len(values)
    order = sorted(range(len(values)), key=lambda index: (values[index], ties[index]))
    for rank, index in enumerate(order, 1):
        ranks[index] = rank
    return ranks


def find_split(values: Sequence[float], ties: Sequence[int]) -> Split | None:
    """Find the split that chance explains worst; None where no side has `SHORTEST` values."""
    best: Split | None = None
    for low, high, times in _iterate_intervals(len(values)):
        # The split with the smallest tail: the one with the largest deviation, or one near an end.
        ranks = compute_ranks(values[low:high], ties[low:high])
        size, sums = len(ranks), list(accumulate(ranks, initial=0))
        indexes = range(SHORTEST, size - SHORTEST + 1)
        excess = {at: abs(sums[at] - at * (size + 1) / 2) for at in indexes}
        near_ends = [at for at in indexes if min(at, size - at) <= FEW]
        clearest = max(excess, key=lambda at: excess[at] ** 2 / (at * (size - at)))
        tails = {at: _bound_tail(excess[at], at, size) for at in (*near_ends, clearest)}
        at = min(tails, key=tails.__getitem__)
        chance = min(1.0, 2 * tails[at] * times)
        if best is None or chance < best.chance:
            best = Split(low + at, low, high, chance)
    return best


def _iterate_intervals(size: int) -> Iterator[tuple[int, int, int]]:
    """Iterate intervals: begin, end, and what the probability of a split in it is multiplied by."""
    if size < 2 * SHORTEST:
        return
    yield 0, size, 2 * _count_splits(size)
    lengths = [size >> halved for halved in range(1, size.bit_length())]
    lengths = [length for length in lengths if length >= 2 * SHORTEST]
    for length in lengths:
        begins = [*range(0, size - length, max(length // 2, 1)), size - length]
        times = 2 * len(lengths) * len(begins) * _count_splits(length)
        for begin in begins:
            yield begin, begin + length, times


def _count_splits(size: int) -> int:
    return size - 2 * SHORTEST + 1


def compute_chance(ranks: Sequence[int], at: int, correlation: float = 0.0) -> float:
    """Compute the probability of a split of the whole as clear as that at `at` where nothing
    changed: corrected for having looked at all splits, and for the correlation of neighbours."""
    size = len(ranks)
    tail = _bound_tail(abs(sum(ranks[:at]) - at * (size + 1) / 2), at, size)
    if correlation > 0:
        # n values of correlation r are worth n (1 - r) / (1 + r) that are independent.
        worth = math.sqrt((1 - correlation) / (1 + correlation))
        deviations = -NormalDist().inv_cdf(max(tail, 1e-300))
        tail = _compute_normal_tail(max(deviations, 0.0) * worth)
    return min(1.0, 4 * tail * _count_splits(size))


def compute_min_values(chance: float) -> int:
    """Compute how many values there must be for the clearest step there is, in the middle of them,
    to be one that chance explains with a probability of `chance` at most."""

    def compute_best_chance(size: int) -> float:
        half = size // 2
        return 4 * _bound_tail(half * (size - half) / 2, half, size) * _count_splits(size)

    return next(size for size in count(2 * SHORTEST) if compute_best_chance(size) <= chance)


def compute_correlation(values: Sequence[float], splits: Sequence[int]) -> float:
    """Compute how much neighbours resemble each other beside the steps, up to `MAX_CORRELATION`.

    The correlation of neighbours around the mean of their own part, less the standard error that
    independent values would have: what chance alone shows costs nothing.
    """
    rest: list[float] = []
    for begin, end in pairwise((0, *splits, len(values))):
        mean = fmean(values[begin:end])
        rest += [value - mean for value in values[begin:end]]
    squares = sum(value * value for value in rest)
    if squares == 0:
        return 0.0
    correlation = sum(left * right for left, right in pairwise(rest)) / squares
    return min(max(correlation - 1 / math.sqrt(len(values)), 0.0), MAX_CORRELATION)


def _bound_tail(excess: float, at: int, size: int) -> float:
    """Bound the probability that the ranks of `at` of `size` values add up to so much more than
    on average: for a few values that of as many uniform numbers, else that of the normal."""
    excess = max(excess - 0.5, 0.0)
    few = min(at, size - at)
    spread = math.sqrt(few * (size - few) * (size + 1) / 12)
    tail = _compute_normal_tail(excess / spread)
    if few > FEW:
        return tail
    # That so many uniform numbers add up to `most` at most (Irwin and Hall).
    most = few / 2 - excess / size
    terms = ((-1) ** k * math.comb(few, k) * (most - k) ** few for k in range(math.floor(most) + 1))
    return min(tail, max(sum(terms) / math.factorial(few), 0.0), 1.0)


def _compute_normal_tail(deviations: float) -> float:
    """Compute the tail by `erfc`: `NormalDist.cdf` is 1 less what is small, and loses it."""
    return math.erfc(deviations / math.sqrt(2)) / 2
