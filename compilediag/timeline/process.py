"""The events of one process by kind, each with the step whose time it lies in.

Two repairs come first, and doing them twice changes nothing. Batches are unpacked; where the
parallel tuples of a batch differ in length, the record was doctored, and the members that all of
them have remain. And events get their final step: while a program runs, an event is recorded with
the step in progress as far as it is known then, but the first iteration of several optimizers, or
compiled calls that wait for an optimizer in vain, are decided later. Step ends are recorded only
when they are final, so they overrule the labels.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from compilediag_harness import wire

Kind = TypeVar("Kind")

_FAMILIES: dict[type, type] = {
    wire.CadenceAsked: wire.CadenceDeclared,
    wire.CadenceFired: wire.CadenceDeclared,
    wire.CudagraphRecorded: wire.CudagraphsRan,
    wire.FixedShapeCompiled: wire.FixedShapeUsed,
    wire.FixedShapeWarmed: wire.FixedShapeUsed,
    wire.KneeMeasured: wire.FixedShapeUsed,
    wire.PaddingChecked: wire.FixedShapeUsed,
    wire.RowsRun: wire.FixedShapeUsed,
}
"""Kinds whose order among each other is preserved, and the kind under which all of a family are."""

_AFTERWARDS = (
    wire.CadenceDeclared,
    wire.DeviceMemoryRead,
    wire.HazardsChecked,
    wire.KneeMeasured,
    wire.UnguardedChanged,
    wire.Witnessed,
)
"""Recorded after the step they are about has ended. The others are recorded when they happen."""


@dataclass(frozen=True, slots=True)
class ProcessEvents:
    """The events of one process, each kind or family in the order in which it was recorded."""

    index: int
    by_kind: dict[type, list[Any]]

    @classmethod
    def collect(cls, index: int, events: Iterable[wire.Event]) -> ProcessEvents:
        """Collect the events of a journal, repaired, as those of process `index`."""
        by_kind: dict[type, list[Any]] = {}
        for event in assign_steps(unpack_batches(events)):
            kind = type(event)
            if event.process != index:
                event = replace(event, process=index)  # noqa: PLW2901
            by_kind.setdefault(_FAMILIES.get(kind, kind), []).append(event)
        return cls(index, by_kind)

    def get_all(self, kind: type[Kind]) -> list[Kind]:
        """Get the events of one kind, or of the family that it stands for."""
        return self.by_kind.get(kind, [])

    def get_last(self, kind: type[Kind]) -> Kind | None:
        """Get the newest of a kind, which overrules those before it; None without one."""
        events = self.by_kind.get(kind)
        return events[-1] if events else None


def extend_record(record: Any, kind: type[Kind], /, **more: Any) -> Kind:
    """Extend an event, or another dataclass, to a kind of its own class that has more fields."""
    return kind(**{field.name: getattr(record, field.name) for field in fields(record)}, **more)


def unpack_batches(events: Iterable[wire.Event]) -> Iterator[wire.Event]:
    """Iterate the events, with each batch of spans as its spans, in the order they ended."""
    for event in events:
        if not isinstance(event, wire.SpansEnded):
            yield event
            continue
        kinds = list(zip(event.names, event.depths, event.threads, event.phases, strict=False))
        columns = (event.kinds, event.steps, event.starts_ns, event.walls_ns)
        for kind, step, start_ns, wall_ns in zip(*columns, strict=False):
            if 0 <= kind < len(kinds):
                name, depth, thread, phase = kinds[kind]
                start, wall_s = start_ns / 1e9, wall_ns / 1e9
                about = (name, start, wall_s, depth, thread, phase or None)
                yield wire.SpanEnded(start + wall_s, step, *about)


def assign_steps(events: Iterable[wire.Event]) -> tuple[wire.Event, ...]:
    """Assign each event of one process to the step whose time it lies in."""
    # Invariant: assigning twice changes nothing.
    events = tuple(events)
    ends: list[float] = []
    numbers: list[int] = []
    for batch in events:
        if isinstance(batch, wire.StepsEnded):
            ends += batch.ends
            numbers += range(batch.first, batch.first + len(batch.ends))
    if not ends:
        return events
    made: list[wire.Event] = []
    for event in events:
        if isinstance(event, wire.StepEvent) and not isinstance(event, _AFTERWARDS):
            event = replace(event, step=_find_step(event.t, event.step, ends, numbers))  # noqa: PLW2901
        elif isinstance(event, wire.CadenceFired):
            fired = zip(event.at, event.steps, strict=False)
            steps = tuple(_find_step(t, step, ends, numbers) for t, step in fired)
            event = replace(event, steps=steps)  # noqa: PLW2901
        made.append(event)
    return tuple(made)


def _find_step(t: float, recorded: int, ends: list[float], numbers: list[int]) -> int:
    """Find the step at `t`; the recorded one where the steps around it are not known."""
    index = bisect_left(ends, t)
    before = numbers[index - 1] if index else -1
    if index == len(ends):  # after the last step that was written
        return max(recorded, before + 1)
    return before + 1 if numbers[index] == before + 1 else recorded
