"""Periodic work that a program declared with `cadence()`, and when it fired."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

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
    """The steps in which it fired, each once, in order: of one firing in two steps the first."""
    shift: int | None
    """The program's number of a step minus ours; None when the program never checked the group."""
    ends: tuple[int, ...] = ()
    """Parallel to `fires`: the last step of each firing. Where a step ends with the optimizer, work
    before and after it in one round of the program's loop lies in two of our steps. Empty: `fires`.
    """

    @property
    def steps(self) -> tuple[int, ...]:
        """Every step in which a firing went on."""
        return tuple(s for first in self.fires for s in (first, *self.rest_of(first)))

    def rest_of(self, step: int) -> range:
        """The steps after `step` that the firing which began there went on in."""
        last = dict(zip(self.fires, self.ends, strict=False)).get(step, step)
        return range(step + 1, last + 1)


def groups_of(process: int, events: Iterable[CadenceEvent]) -> tuple[CadenceGroup, ...]:
    """The groups of one process in the order of their declaration; the newest of a name holds."""
    declared: dict[str, CadenceDeclared] = {}
    shifts: dict[str, int] = {}
    fires: dict[str, list[_Firing]] = {}
    for event in events:
        match event:
            case CadenceDeclared():
                declared[event.name] = event
            case CadenceAsked():
                shifts.setdefault(event.name, event.number - event.step)
            case CadenceFired():
                numbers = event.numbers or event.steps
                for index, step, number in zip(event.name, event.steps, numbers, strict=False):
                    if index < len(event.names):
                        _add(fires.setdefault(event.names[index], []), number, step)
    spans = {name: _spans(firings) for name, firings in fires.items()}
    return tuple(
        CadenceGroup(
            process=process,
            name=name,
            every=event.every,
            offset=event.offset,
            own_every=event.own_every,
            fires=tuple(spans.get(name, {})),
            shift=shifts.get(name),
            ends=tuple(spans.get(name, {}).values()),
        )
        for name, event in declared.items()
    )


@dataclass(slots=True)
class _Firing:
    number: int
    first: int
    last: int


def _add(firings: list[_Firing], number: int, step: int) -> None:
    """A number that comes again in a later round is another firing: the program counts anew."""
    if firings and firings[-1].number == number and 0 <= step - firings[-1].last <= 1:
        firings[-1].last = step
    else:
        firings.append(_Firing(number, step, step))


def _spans(firings: Iterable[_Firing]) -> dict[int, int]:
    """First steps, each once and in order, to the last ones; the next firing ends one."""
    spans: dict[int, int] = {}
    for firing in sorted(firings, key=lambda item: (item.first, item.last)):
        spans[firing.first] = firing.last
    starts = list(spans)
    for start, following in pairwise(starts):
        spans[start] = min(spans[start], following - 1)
    return spans
