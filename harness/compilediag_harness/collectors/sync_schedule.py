"""Which steps are sampled for synchronisations, and how much of each is looked at.

In an ordinary run a few, at growing intervals. In a variant of a cadence probe those in which
periodic work fires, with quiet ones on both sides: what a firing costs is what it takes beyond
them. Which steps fire is known for groups of the code; what a template moves begins at step 0, or
one step beside, in nearly every program.
"""

from __future__ import annotations

import os

from compilediag_harness.base.session import Session
from compilediag_harness.user_api.cadence import read_setting

STEPS_VARIABLE = "COMPILEDIAG_SYNC_STEPS"
"""Environment variable of a probe's variants: period and first step of what fires, as in "7+6"."""

IN_A_ROW = 3
"""Samples that follow each other; the interval doubles after each later one."""

NEAR = 3
"""Steps sampled on each side of one that fires."""


class SyncSchedule:
    """The sampled steps of an ordinary run."""

    max_samples = 16
    max_windows = 64
    """How often the class is changed in one process. A step with compiled calls takes one more than
    it has calls; Python 3.13 stops caching the attributes of a class that was changed a thousand
    times."""
    max_reads = 2048
    """Reads counted in one step, for some four microseconds each."""

    def __init__(self) -> None:
        self.samples = 0
        self._next = 0

    def due(self, step: int) -> bool:
        """Whether this step is to be sampled."""
        return step >= self._next

    def sampled(self, step: int) -> None:
        """A step was sampled and reported."""
        self.samples += 1
        later = self.samples - IN_A_ROW
        self._next = step + 1 + (0 if later < 0 else 2 ** (later + 1))

    def watched_until(self, step: int) -> int:
        """Steps before this one are to be watched, so that the next sample is not missed."""
        return step + 1


class ProbeSchedule(SyncSchedule):
    """Those of a variant: a step of `every`, counted from `first` or from 0, and those near."""

    max_samples = 128
    max_windows = 384
    max_reads = 65_536

    def __init__(self, every: int, first: int) -> None:
        super().__init__()
        self._every = every
        self._offsets = (first % every, 0)

    def due(self, step: int) -> bool:
        return any((step - offset + NEAR) % self._every <= 2 * NEAR for offset in self._offsets)

    def sampled(self, step: int) -> None:
        self.samples += 1

    def watched_until(self, step: int) -> int:
        return step + self._every


def schedule_of(session: Session) -> SyncSchedule:
    """The schedule that the environment sets."""
    text = os.environ.get(STEPS_VARIABLE, "")
    try:
        every, first = read_setting(text) if text else (0, 0)
    except ValueError as error:
        session.fault(STEPS_VARIABLE, error)
        return SyncSchedule()
    return ProbeSchedule(every, first) if every else SyncSchedule()
