"""Periodic work ("every 250 steps") under a name, so that the cadence probe can move it.

`COMPILEDIAG_CADENCE_<NAME>` is what a probe sets: "off", a period ("50"), or a period and an offset
("50+3"). Firings are written with times: the step of one is final only when it is known where steps
ended.
"""

from __future__ import annotations

import os
import re
import time
import warnings
import weakref

from compilediag_harness.base.session import Session, SessionSink, SessionSinks
from compilediag_harness.torch_internals import dynamo_skip
from compilediag_harness.user_api.to_jsonable import clip_name
from compilediag_harness.wire import CadenceAsked, CadenceDeclared, CadenceFired

VARIABLE_PREFIX = "COMPILEDIAG_CADENCE_"

MAX_GROUPS = 256
"""Groups reported to a session: a program that makes up names must not fill its journal."""

_SETTING = re.compile(r"(\d+)(?:\+(\d+))?")

_monotonic = time.monotonic


class Cadence:
    """One group of periodic work. `every` is the period in steps, 0 when the group is off;
    `own_every` is the program's own."""

    __slots__ = ("__weakref__", "_was_checked", "every", "name", "offset", "own_every")

    def __init__(self, name: str, every: int, offset: int = 0, own_every: int = 0) -> None:
        self.name = name
        self.every = every
        self.offset = offset
        self.own_every = own_every or every
        self._was_checked = False

    def due(self, step: int) -> bool:
        """True if the group fires in this step: `step % every == 0`, unless a probe moved it.

        Inside of compiled code it is this expression and no more: nothing is recorded, the graph
        does not break, and the code is guarded on the period and on the answer's step as it would
        be on an expression of the program's own.
        """
        due = bool(self.every > 0 and step % self.every == self.offset)
        # Checked first: compiled code is then not guarded on whether a session is there.
        if dynamo_skip.is_compiling() or not sinks.all:
            return due
        if due or not self._was_checked:
            name, at = clip_name(self.name), _monotonic()
            for sink in sinks.all:
                if not self._was_checked:
                    sink.report_first_check(name, int(step), at)
                if due:
                    sink.add(name, at, int(step))
            self._was_checked = True
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
    variable = format_variable_name(name)
    setting, in_force = os.environ.get(variable), (every, 0)
    if setting is not None:
        try:
            in_force = parse_setting(setting)
        except ValueError as error:
            # The program runs on as it was written: a bad setting is ours, or the shell's.
            warnings.warn(f"{variable}: {error}; every={every} holds", stacklevel=2)
    group = Cadence(name, *in_force, own_every=every)
    dynamo_skip.bind_if_imported()
    _groups[clip_name(name)] = group
    for sink in sinks.all:
        sink.declare(clip_name(name), group)
    return group


def format_variable_name(name: str) -> str:
    """Format the name of the environment variable that moves the group `name`."""
    return VARIABLE_PREFIX + re.sub(r"[^A-Z0-9]", "_", name.upper())


def parse_setting(text: str) -> tuple[int, int]:
    """Parse period and offset, in steps, of a setting; (0, 0) for "off".

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


# --- what sessions receive ----------------------------------------------------------------------

_groups: weakref.WeakValueDictionary[str, Cadence] = weakref.WeakValueDictionary()
"""The groups that exist, by name, for later sessions. One of the same name replaces the older."""


class _Firings(SessionSink):
    """The firings that one session has not received yet."""

    def __init__(self, session: Session) -> None:
        self._declared: dict[str, tuple[int, int, int]] = {}
        self._checked: set[str] = set()
        super().__init__(session)
        for name, group in list(_groups.items()):
            self.declare(name, group)

    def discard(self) -> None:
        super().discard()
        self._rows: list[tuple[str, float, int, int]] = []

    def declare(self, name: str, group: Cadence) -> None:
        """Report a group, unless it was reported as it is."""
        values = group.every, group.offset, group.own_every
        known = self._declared.get(name)
        if known != values and (known is not None or len(self._declared) < MAX_GROUPS):
            self._declared[name] = values
            self.session.emit_in_step(CadenceDeclared, name, *values)

    def report_first_check(self, name: str, step: int, at: float) -> None:
        """Report the first check only, also where the program makes a group in every step."""
        if name in self._declared and name not in self._checked:
            self._checked.add(name)
            session = self.session
            session.emit(CadenceAsked(session.convert_time(at), session.step, name, step))

    def add(self, name: str, at: float, number: int) -> None:
        with self.lock:
            self._rows.append((name, at, self.session.step, number))
            if not self.is_due(at, len(self._rows)):
                return
            self.written = at
        self.finish()

    def finish(self) -> None:
        with self.lock:
            rows, self._rows = self._rows, []
        if not rows:
            return
        session = self.session
        fired, at, steps, numbers = zip(*rows, strict=True)
        names = tuple(dict.fromkeys(fired))
        times = tuple(map(session.convert_time, at))
        positions = tuple(map(names.index, fired))
        session.emit(CadenceFired(times[-1], names, positions, times, steps, numbers))


sinks = SessionSinks(_Firings)
