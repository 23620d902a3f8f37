"""From where on the steps that a trainer printed are steady, and their figures from there.

Early steps lie in both directions: the first ones compile, allocate and fill caches, and where
work is handed to a device without waiting for it, one of them may look a hundred times too fast.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

from compilediag.timeline.train_log import TrainLog

STEADY_RATIO = 1.5
"""A step is like the later ones when it takes at most so many times as long, or as short."""

STEADY_RUN = 3
"""So many steps in a row that are like the later ones end the warm-up."""

MIN_STEADY = 2
"""Fewer lines than this after warm-up give no rate: a single early step is never trusted."""


def warmup_lines(log: TrainLog, steps: int | None) -> int:
    """How many leading lines belong to warm-up: those of the first `steps` steps, where that is
    given; else those before the first few that are like the second half of the run.

    The first line is always warm-up, unless it is the only one.
    """
    if steps is not None:
        return _lines_of(log, steps)
    signal = _signal(log)
    known = [value for value in signal if value > 0]
    if len(known) < 2:
        return 0
    usual = median(known[len(known) // 2 :])
    run = 0
    for index, value in enumerate(signal):
        run = run + 1 if usual / STEADY_RATIO <= value <= usual * STEADY_RATIO else 0
        if run == STEADY_RUN:
            return max(1, index + 1 - STEADY_RUN)
    return max(1, len(signal) // 2)


def _lines_of(log: TrainLog, steps: int) -> int:
    """The lines of the first so many steps."""
    passed = 0.0
    for index, (number, covered) in enumerate(zip(log.numbers, log.covered, strict=True)):
        begun = number - covered - (log.numbers[0] - log.covered[0])
        if (passed if math.isnan(begun) else begun) >= steps:
            return index
        passed += covered
    return len(log.covered)


def _signal(log: TrainLog) -> Sequence[float]:
    """Seconds of each line, or where there are none the reciprocal of a rate."""
    if any(value > 0 for value in log.seconds):
        return log.seconds
    for series in log.rates.values():
        if any(value > 0 for value in series):
            return [1 / value if value > 0 else math.nan for value in series]
    return ()


def timed(log: TrainLog, first: int = 0) -> Iterator[tuple[float, float]]:
    """(seconds of a step, steps that they are the mean of) of every line that has them."""
    for seconds, covered in zip(log.seconds[first:], log.covered[first:], strict=True):
        if seconds > 0:
            yield seconds, covered


def steady_step_s(log: TrainLog, warmup: int) -> float | None:
    """Median wall seconds of a step after warm-up; None with too few lines.

    No mean: a trainer that prints every tenth step prints just those that evaluate or save.
    """
    found = sorted(timed(log, warmup))
    return at_share(found, 0.5) if len(found) >= MIN_STEADY else None


def at_share(ordered: Sequence[tuple[float, float]], share: float) -> float:
    """The seconds at nearest rank `share` of (seconds, steps), each standing for its steps."""
    rank, counted = share * sum(steps for _, steps in ordered), 0.0
    for seconds, steps in ordered:
        counted += steps
        if counted >= rank:
            return seconds
    return ordered[-1][0]


def steady_rate(log: TrainLog, name: str, warmup: int) -> float | None:
    """The median of a rate after warm-up; None with too few lines."""
    known = [value for value in log.rates.get(name, ())[warmup:] if value > 0]
    return median(known) if len(known) >= MIN_STEADY else None
