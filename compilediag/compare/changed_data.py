"""Other differences of two runs: the data and settings that a fix changed.

Padding, dropping the last batch, other sizes or `dynamic=` change the work of a run on purpose.
Counts and causes of such runs can be compared; what is measured of other work cannot.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from compilediag.receipt.schema.receipt import Receipt

OPTION = "--changed-data"
_WORK = ("samples", "elements")
_SAME_SPEED = frozenset({"lane.name", "lane.numerics_flags.dynamic"})
"""Fields of the configuration that leave the same work: times are comparable as after any edit."""


class FieldChange(Struct, frozen=True):
    """A field whose values differ, by path."""

    path: str
    before: Any
    after: Any


class ChangedData(Struct, frozen=True):
    """Differences between two runs that are accepted as the work of a fix."""

    #: Those of the configuration, of the work (`throughput`), and `steps.count`.
    fields: tuple[FieldChange, ...]
    callable: str | None  #: What was given the compared work; None: not known to be the same.
    #: Same samples, elements and settings: then times and memory can be compared too.
    same_work: bool


def build_changed_data(
    before: Receipt, after: Receipt, config: Iterable[FieldChange]
) -> ChangedData:
    """Put together what differs; `config` are the fields of the configuration that do."""
    settings, work = tuple(config), find_work_changes(before, after)
    left, right = before.throughput, after.throughput
    same = left is not None and right is not None and left.callable == right.callable
    both = same and all(getattr(side, name) is not None for side in (left, right) for name in _WORK)
    counts = (run.steps.count if run.steps is not None else None for run in (before, after))
    steps = FieldChange("steps.count", *counts)
    other_steps = None not in (steps.before, steps.after) and steps.before != steps.after
    return ChangedData(
        fields=(*settings, *work, *((steps,) if other_steps else ())),
        callable=left.callable if both and left is not None else None,
        same_work=both
        and not work
        and not other_steps
        and _SAME_SPEED.issuperset(field.path for field in settings),
    )


def find_work_changes(before: Receipt, after: Receipt) -> tuple[FieldChange, ...]:
    """Find samples and elements given to the same callable, where both are known and differ."""
    left, right = before.throughput, after.throughput
    if left is None or right is None or left.callable != right.callable:
        return ()
    pairs = ((name, getattr(left, name), getattr(right, name)) for name in _WORK)
    return tuple(
        FieldChange(f"throughput.{name}", old, new)
        for name, old, new in pairs
        if old is not None and new is not None and old != new
    )
