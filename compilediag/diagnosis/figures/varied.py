"""Every guarded value that was false at a compile, not only the causes, with what it was in each
graph of its frame; those that differ by an index alone and varied alike are one row."""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass, field

from msgspec.structs import replace

from compilediag.diagnosis.causes.cause_group import APART, add_values
from compilediag.diagnosis.causes.run_causes import RunCauses
from compilediag.diagnosis.codes import REGISTER
from compilediag.diagnosis.findings import Cause, make_changed_at, make_writers
from compilediag.receipt.schema.compiles import ValueInGraph, VariedValue, mask_indices
from compilediag.receipt.schema.record import make_record
from compilediag.timeline.compiles import Recompile
from compilediag.timeline.timeline import Timeline

MAX_VARIED = 200
"""Most rows, those that were false most often first."""

MAX_GRAPHS = 64
"""Most graphs named in one row."""


@dataclass(slots=True)
class _Row:
    """One value of one frame, while recompiles are gone through in time order."""

    event: Recompile
    causes: list[Cause] = field(default_factory=list[Cause])
    values: dict[str, str] = field(default_factory=dict[str, str])
    entries: dict[str, None] = field(default_factory=dict[str, None])
    recompiles: set[str] = field(default_factory=set[str])

    def add(self, entry_id: str, compile_id: str, cause: Cause) -> None:
        self.causes.append(cause)
        self.entries[entry_id] = None
        self.recompiles.add(compile_id)
        add_values(self.values, ((entry_id, cause.expected), (compile_id, cause.actual)))

    def make(self) -> VariedValue:
        changes = (make_changed_at(cause.changed) for cause in self.causes)
        graphs = sorted(self.values.items(), key=lambda item: _get_number(item[0]))[:MAX_GRAPHS]
        return make_record(
            VariedValue,
            self.causes[0],
            frame=self.event.frame,
            process=self.event.process,
            epoch=self.event.epoch,
            count=len(self.recompiles),
            values=tuple(ValueInGraph(compile_id=graph, value=value) for graph, value in graphs),
            entries=tuple(sorted(self.entries, key=_get_number)[:MAX_GRAPHS]),
            changed_at=next((change for change in changes if change is not None), None),
            writers=make_writers(self.causes[0]),
        )


def _get_number(compile_id: str) -> int:
    number = re.search(r"(\d+)(?:_\d+)?$", compile_id)
    return int(number[1]) if number else 0


def build_varied(timeline: Timeline, causes: RunCauses) -> tuple[VariedValue, ...]:
    """Build the rows of a run, those that were false at most compiles first."""
    rows: dict[tuple[Hashable, str, Hashable], _Row] = {}
    for event in timeline.recompiles:
        for entry_id, guards in causes.explained[event.id].false:
            for cause in guards:
                # Size, dtype and layout of a tensor are several values; created and grown is one.
                apart = REGISTER[cause.rule].changed in APART
                key = event.id.frame, cause.variable, (cause.rule, cause.kind) if apart else None
                rows.setdefault(key, _Row(event)).add(entry_id, event.compile_id, cause)
    alike: dict[Hashable, list[VariedValue]] = {}
    for (frame, variable, what), row in rows.items():
        made = row.make()
        name = mask_indices(variable)
        alike.setdefault((frame, name, what, made.values, made.entries), []).append(made)
    merged = (_merge(members) for members in alike.values())
    return tuple(sorted(merged, key=lambda row: (row.process, -row.count)))


def _merge(members: list[VariedValue]) -> VariedValue:
    if len(members) == 1:
        return members[0]
    name = mask_indices(members[0].variable)
    return replace(members[0], variable=name, alike=len(members))
