"""Periodic work that a program declared with `cadence()`, and when it fired."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from compilediag_harness.wire import CadenceAsked, CadenceDeclared, CadenceFired

CadenceEvent = CadenceDeclared | CadenceAsked | CadenceFired


@dataclass(frozen=True, slots=True)
class CadenceGroup:
    """Periodic work that the program declared with `cadence()`."""

    process: int
    name: str
    every: int
    """The period in force, in steps; 0 when a probe had switched it off."""
    offset: int
    own_every: int
    """The program's own period."""
    fires: tuple[int, ...]
    """The steps in which it fired, each once, in order."""
    shift: int | None
    """The program's number of a step minus ours; None when the program never checked the group."""


def groups_of(process: int, events: Iterable[CadenceEvent]) -> tuple[CadenceGroup, ...]:
    """The groups of one process in the order of their declaration; the newest of a name holds."""
    declared: dict[str, CadenceDeclared] = {}
    shifts: dict[str, int] = {}
    fires: dict[str, set[int]] = {}
    for event in events:
        match event:
            case CadenceDeclared():
                declared[event.name] = event
            case CadenceAsked():
                shifts.setdefault(event.name, event.number - event.step)
            case CadenceFired():
                for index, step in zip(event.name, event.steps, strict=False):
                    if index < len(event.names):
                        fires.setdefault(event.names[index], set()).add(step)
    return tuple(
        CadenceGroup(
            process=process,
            name=name,
            every=event.every,
            offset=event.offset,
            own_every=event.own_every,
            fires=tuple(sorted(fires.get(name, ()))),
            shift=shifts.get(name),
        )
        for name, event in declared.items()
    )
