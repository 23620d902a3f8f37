"""Which steps are sampled for synchronisations, and how much of each is looked at.

In an ordinary run a few, at growing distances. In a variant of a cadence probe those in which
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
"""Samples that follow each other; the distance doubles after each later one."""

MOST_SAMPLES = 16

MOST_WINDOWS = 64
"""How often the class is changed in one process. A step with compiled calls takes one more than it
has calls; Python 3.13 stops caching the attributes of a class that was changed a thousand times."""

MOST_READS = 2048
"""Reads counted in one step, for some four microseconds each."""

NEAR = 3
"""Steps sampled on each side of one that fires."""

PROBE_SAMPLES = 128
PROBE_WINDOWS = 384
PROBE_READS = 65_536


class Turns:
    """The turns of an ordinary run."""

    samples = MOST_SAMPLES
    windows = MOST_WINDOWS
    reads = MOST_READS

    def __init__(self) -> None:
        self.told = 0
        self._next = 0

    def wants(self, step: int) -> bool:
        """Whether it is this step's turn."""
        return step >= self._next

    def sampled(self, step: int) -> None:
        """A step was sampled and told."""
        self.told += 1
        self._next = step + 1 + (0 if self.told < IN_A_ROW else 2 ** (self.told - IN_A_ROW + 1))

    def watched_until(self, step: int) -> int:
        """Steps before this one are to be watched, so that the next turn is not missed."""
        return step + 1


class ProbeTurns(Turns):
    """The turns of a variant: a step of `every`, counted from `first` or from 0, and those near."""

    samples = PROBE_SAMPLES
    windows = PROBE_WINDOWS
    reads = PROBE_READS

    def __init__(self, every: int, first: int) -> None:
        super().__init__()
        self._every = every
        self._places = (first % every, 0)

    def wants(self, step: int) -> bool:
        return any((step - place + NEAR) % self._every <= 2 * NEAR for place in self._places)

    def sampled(self, step: int) -> None:
        self.told += 1

    def watched_until(self, step: int) -> int:
        return step + self._every


def turns_of(session: Session) -> Turns:
    """The turns that the environment asks for."""
    text = os.environ.get(STEPS_VARIABLE, "")
    try:
        every, first = read_setting(text) if text else (0, 0)
    except ValueError as error:
        session.fault(STEPS_VARIABLE, error)
        return Turns()
    return ProbeTurns(every, first) if every else Turns()
