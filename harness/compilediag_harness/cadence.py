"""Periodic work ("every 250 steps") under a name, so that the cadence probe can move it.

`COMPILEDIAG_CADENCE_<NAME>` is what a probe sets: "off", a period ("50"), or a period and an offset
("50+3"). Without it the program's own period holds.
"""

from __future__ import annotations

import os
import re
import warnings

VARIABLE_PREFIX = "COMPILEDIAG_CADENCE_"

_SETTING = re.compile(r"(\d+)(?:\+(\d+))?")


class Cadence:
    """One group of periodic work. `every` is the period in steps, 0 when the group is off."""

    __slots__ = ("every", "name", "offset")

    def __init__(self, name: str, every: int, offset: int = 0) -> None:
        self.name = name
        self.every = every
        self.offset = offset

    def due(self, step: int) -> bool:
        """Whether the group fires in this step: `step % every == 0`, unless a probe moved it."""
        return self.every > 0 and step % self.every == self.offset

    def __repr__(self) -> str:
        return f"Cadence({self.name!r}, every={self.every}, offset={self.offset})"


def cadence(name: str, every: int) -> Cadence:
    """A group of periodic work that fires every `every` steps, beginning with step 0.

    Raises:
        ValueError: `every` is below 1.
    """
    if every < 1:
        raise ValueError(f"cadence {name!r}: every must be 1 or more, not {every}")
    setting = os.environ.get(variable(name))
    if setting is None:
        return Cadence(name, every)
    try:
        return Cadence(name, *read_setting(setting))
    except ValueError as error:
        # The program runs on as it was written: a bad setting is ours, or the shell's.
        warnings.warn(f"{variable(name)}: {error}; every={every} holds", stacklevel=2)
        return Cadence(name, every)


def variable(name: str) -> str:
    """The environment variable that moves the group `name`."""
    return VARIABLE_PREFIX + re.sub(r"[^A-Z0-9]", "_", name.upper())


def read_setting(text: str) -> tuple[int, int]:
    """Period and offset of a setting; (0, 0) for "off".

    Raises:
        ValueError: it is none.
    """
    if text.strip().lower() == "off":
        return 0, 0
    match = _SETTING.fullmatch(text.strip())
    if match is None or int(match[1]) < 1:
        raise ValueError(f'{text!r} is not "off", a period such as "50", or "50+3"')
    every = int(match[1])
    return every, int(match[2] or 0) % every
