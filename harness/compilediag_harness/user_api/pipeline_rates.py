"""The arithmetic of a producer-consumer loop: what each side could do if it never had to wait.

Pure. Samples are whatever the program counts, the same on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable

TRAIN, INFER, WAIT = "train", "infer", "wait"

Interval = tuple[float, float]
"""Begin and end, in seconds."""


def rate(samples: int, seconds: float) -> float | None:
    """Samples a second; None when there were none, or no time was taken."""
    return samples / seconds if samples > 0 and seconds > 0.0 else None


def max_at_once(intervals: Iterable[Interval]) -> int:
    """Most intervals in progress at one moment."""
    # An end sorts before a begin of the same moment.
    changes = sorted(edge for began, ended in intervals for edge in ((began, 1), (ended, -1)))
    highest = now = 0
    for _, change in changes:
        now += change
        highest = max(highest, now)
    return highest


def slots_of(declared: int | None, named: int, intervals: Iterable[Interval]) -> int:
    """How many inference calls can be in progress at a time: as declared, else as many slots as
    were named or were in use at one moment."""
    return declared if declared is not None else max(named, max_at_once(intervals))


def infer_capacity(samples: int, seconds: float, slots: int) -> float | None:
    """The rate of one slot, times the slots."""
    one = rate(samples, seconds)
    return None if one is None else one * slots
