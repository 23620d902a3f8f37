"""What one process told, by kind: each event with the step whose time it lies in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from compilediag.timeline.batches import apart
from compilediag.timeline.step_labels import with_final_steps
from compilediag_harness.wire import (
    CadenceAsked,
    CadenceDeclared,
    CadenceFired,
    CudagraphRecorded,
    CudagraphsRan,
    Event,
    FixedShapeCompiled,
    FixedShapeUsed,
    FixedShapeWarmed,
    KneeMeasured,
    PaddingChecked,
    RowsRun,
)

Kind = TypeVar("Kind")

_FAMILIES: dict[type, type] = {
    CadenceAsked: CadenceDeclared,
    CadenceFired: CadenceDeclared,
    CudagraphRecorded: CudagraphsRan,
    FixedShapeCompiled: FixedShapeUsed,
    FixedShapeWarmed: FixedShapeUsed,
    KneeMeasured: FixedShapeUsed,
    PaddingChecked: FixedShapeUsed,
    RowsRun: FixedShapeUsed,
}
"""Kinds whose order among each other is kept, and the kind under which all of a family are."""


@dataclass(frozen=True, slots=True)
class ProcessEvents:
    """The events of one process, each kind or family in the order in which it was told."""

    index: int
    by_kind: dict[type, list[Any]]

    @classmethod
    def of_process(cls, index: int, events: Iterable[Event]) -> ProcessEvents:
        """The events of a journal, batches taken apart."""
        by_kind: dict[type, list[Any]] = {}
        for event in with_final_steps(apart(events)):
            kind = type(event)
            by_kind.setdefault(_FAMILIES.get(kind, kind), []).append(event)
        return cls(index, by_kind)

    def of(self, kind: type[Kind]) -> list[Kind]:
        """Those of one kind, or of the family that it stands for."""
        return self.by_kind.get(kind, [])

    def last(self, kind: type[Kind]) -> Kind | None:
        """The newest of a kind, which overrules those before it."""
        told = self.by_kind.get(kind)
        return told[-1] if told else None
