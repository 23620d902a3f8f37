"""Periodic work ("every 250 steps") under a name, so that the cadence probe can move it.

`COMPILEDIAG_CADENCE_<NAME>` is what a probe sets: "off", a period ("50"), or a period and an offset
("50+3"). Without it the program's own period holds. Every session is told of the groups and of the
steps in which they fired; see `cadence_log.py`.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from typing import Any

from compilediag_harness.base.session import Session
from compilediag_harness.torch_internals import dynamo_skip
from compilediag_harness.user_api import cadence_log

VARIABLE_PREFIX = "COMPILEDIAG_CADENCE_"

_SETTING = re.compile(r"(\d+)(?:\+(\d+))?")


class Cadence:
    """One group of periodic work. `every` is the period in steps, 0 when the group is off;
    `own_every` is the program's own."""

    __slots__ = ("__weakref__", "_asked", "every", "name", "offset", "own_every")

    def __init__(self, name: str, every: int, offset: int = 0, own_every: int = 0) -> None:
        self.name = name
        self.every = every
        self.offset = offset
        self.own_every = own_every or every
        self._asked = False

    def due(self, step: int) -> bool:
        """Whether the group fires in this step: `step % every == 0`, unless a probe moved it.

        Inside of compiled code it is this expression and no more: nothing is written down, the
        graph does not break, and the code is guarded on the period and on the answer's step as it
        would be on an expression of the program's own.
        """
        due = bool(self.every > 0 and step % self.every == self.offset)
        # Asked first: code compiled with it is then not guarded on whether anybody listens.
        if dynamo_skip.is_compiling() or not cadence_log.listening:
            return due
        if not self._asked:
            self._asked = True
            cadence_log.asked(self.name, step)
        if due:
            cadence_log.fired(self.name)
        return due

    def __repr__(self) -> str:
        return f"Cadence({self.name!r}, every={self.every}, offset={self.offset})"


def cadence(name: str, every: int) -> Cadence:
    """A group of periodic work that fires every `every` steps, beginning with step 0.

    Raises:
        ValueError: `every` is below 1.
    """
    if every < 1:
        raise ValueError(f"cadence {name!r}: every must be 1 or more, not {every}")
    group = Cadence(name, *_in_force(name, every), own_every=every)
    torch_module = sys.modules.get("torch")
    if hasattr(torch_module, "compiler"):  # absent while torch is being imported
        _keep_dynamo_away(torch_module)
    cadence_log.declared(name, group)
    return group


def _in_force(name: str, every: int) -> tuple[int, int]:
    setting = os.environ.get(variable(name))
    if setting is None:
        return every, 0
    try:
        return read_setting(setting)
    except ValueError as error:
        # The program runs on as it was written: a bad setting is ours, or the shell's.
        warnings.warn(f"{variable(name)}: {error}; every={every} holds", stacklevel=3)
        return every, 0


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


def install(session: Session, torch_module: Any) -> None:
    """Starts telling `session` of every group, those declared before included."""
    _keep_dynamo_away(torch_module)
    cadence_log.install(session)


def _keep_dynamo_away(torch_module: Any) -> None:
    """With a session and without: the frames of a program are the same."""
    dynamo_skip.bind(torch_module)
    dynamo_skip.skip_in_dynamo(torch_module, Cadence.due)
