"""Compares two receipts of one lane: counts, causes, breaks, frames, environment, timings.

Pure. Timings are told and never judged: two machines, or two moments of one, are not comparable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from compilediag.compare import figures, keys
from compilediag.compare.changes import (
    BreakChange,
    CauseChange,
    Comparison,
    CountChange,
    FieldChange,
    FrameChange,
    NumberChange,
    TimingChange,
)
from compilediag.errors import LanesNotComparable
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import flatten
from compilediag.receipt.schema.tracked import TrackedRecord
from compilediag.receipt.versions import unknown_to, version_of

_VARYING = frozenset({"load_avg_1m"})
"""Environment facts that differ between any two runs."""


def compare(before: Receipt, after: Receipt) -> Comparison:
    """What changed from `before` to `after`.

    Raises:
        LanesNotComparable: they differ in a field of the lane, or in the work that was done; the
            message says in which.
    """
    different = lane_differences(before, after)
    if different:
        told = "; ".join(f"{item.path} is {item.before!r} and {item.after!r}" for item in different)
        raise LanesNotComparable(f"The receipts are of different lanes: {told}.")
    _check_budgets(before, after)
    causes = _causes(before, after)
    breaks = _breaks(before, after)
    counts_after = keys.counts(after)
    findings = Counter(_finding_names(before)), Counter(_finding_names(after))
    return Comparison(
        before_id=before.receipt_id,
        after_id=after.receipt_id,
        verdict=(before.verdict, after.verdict),
        status=(before.status, after.status),
        counts=tuple(
            CountChange(name, count, counts_after[name])
            for name, count in keys.counts(before).items()
        ),
        causes_new=tuple(item for item in causes if not item.before),
        causes_gone=tuple(item for item in causes if not item.after),
        causes_same=tuple(item for item in causes if item.before and item.after),
        breaks_new=tuple(item for item in breaks if not item.before),
        breaks_gone=tuple(item for item in breaks if not item.after),
        breaks_same=tuple(item for item in breaks if item.before and item.after),
        frames=tuple(_frames(before, after)),
        findings_new=tuple((findings[1] - findings[0]).elements()),
        findings_gone=tuple((findings[0] - findings[1]).elements()),
        lane_not_told=_split_lanes(before, after)[1],
        environment=_field_changes(before.environment, after.environment, "environment"),
        provenance=_field_changes(before.header.provenance, after.header.provenance, "provenance"),
        checks=_field_changes(before.checks, after.checks, "checks"),
        timings=_timings(before, after),
        numbers=_numbers(before, after),
        tracked_lanes=_tracked_lanes(before, after),
    )


def lane_differences(before: Receipt, after: Receipt) -> tuple[FieldChange, ...]:
    """Fields of the lane that differ; a field that one receipt does not know differs as well,
    unless the version of the format it was written in has no such field."""
    return _split_lanes(before, after)[0]


def _split_lanes(
    before: Receipt, after: Receipt
) -> tuple[tuple[FieldChange, ...], tuple[FieldChange, ...]]:
    """What differs, and what the older of two versions had no field for: an old receipt stays
    comparable with later ones when the lane learns to tell more."""
    found = _field_changes(before.header.lane, after.header.lane, "lane")
    written = before.schema_version, after.schema_version
    if not found or written[0] == written[1]:
        return found, ()
    older = min(written, key=lambda text: version_of(text) or (0, 0))
    kept = before if written[0] == older else after
    lane = dict(flatten(kept.header.lane, "lane"))
    new = unknown_to(older)
    absent = {
        item.path for item in found if lane.get(item.path) is None and new(f"header.{item.path}")
    }
    return (
        tuple(item for item in found if item.path not in absent),
        tuple(item for item in found if item.path in absent),
    )


def _check_budgets(before: Receipt, after: Receipt) -> None:
    """Two runs that are known to have done different work tell nothing about each other. Where one
    is not known, or another callable tells it, the work is not compared."""
    left, right = before.throughput, after.throughput
    if left is None or right is None or left.callable != right.callable:
        return
    for name, old, new in (
        ("samples", left.samples, right.samples),
        ("elements", left.elements, right.elements),
    ):
        if old is not None and new is not None and old != new:
            raise LanesNotComparable(
                f"The receipts are of different budgets: {left.callable} was given {old} {name} "
                f"and {new}. Run both over the same data, for example with --steps."
            )


def _field_changes(before: Any, after: Any, path: str) -> tuple[FieldChange, ...]:
    left = dict(flatten(before, path))
    right = dict(flatten(after, path))
    return tuple(
        FieldChange(name, left.get(name), right.get(name))
        for name in dict.fromkeys((*left, *right))
        if left.get(name) != right.get(name) and name.rpartition(".")[2] not in _VARYING
    )


def _causes(before: Receipt, after: Receipt) -> list[CauseChange]:
    left, right = keys.causes(before), keys.causes(after)
    changes: list[CauseChange] = []
    for key in dict.fromkeys((*left, *right)):
        told = (right.get(key) or left[key])[0]
        changes.append(
            CauseChange(
                key=key,
                before=len(left.get(key, ())),
                after=len(right.get(key, ())),
                line=told.line,
                expected=told.expected,
                actual=told.actual,
            )
        )
    return changes


def _breaks(before: Receipt, after: Receipt) -> list[BreakChange]:
    left, right = keys.breaks(before), keys.breaks(after)
    return [
        BreakChange(
            key.file,
            key.function,
            key.category,
            key.reason,
            before=len(left.get(key, ())),
            after=len(right.get(key, ())),
            line=(right.get(key) or left[key])[-1],
        )
        for key in dict.fromkeys((*left, *right))
    ]


_ABSENT = keys.FrameTotal(compiles=0, ran_eager=False, line=0)


def _frames(before: Receipt, after: Receipt) -> Iterable[FrameChange]:
    left, right = keys.frames(before), keys.frames(after)
    for key in dict.fromkeys((*left, *right)):
        old, new = left.get(key, _ABSENT), right.get(key, _ABSENT)
        same = (old.compiles, old.ran_eager) == (new.compiles, new.ran_eager)
        if not same or (key in left) != (key in right):
            yield FrameChange(
                file=key.file,
                function=key.function,
                before=old.compiles,
                after=new.compiles,
                eager_before=old.ran_eager,
                eager_after=new.ran_eager,
                present_before=key in left,
                present_after=key in right,
            )


def _finding_names(receipt: Receipt) -> list[str]:
    names: list[str] = []
    for item in receipt.findings:
        place = item.location
        about = item.variable or (f"{place.function} in {place.file}" if place is not None else "")
        names.append(f"{item.rule} {about}".strip())
    return names


def _timings(before: Receipt, after: Receipt) -> tuple[TimingChange, ...]:
    left, right = _seconds(before), _seconds(after)
    return tuple(TimingChange(name, left[name], right[name]) for name in left)


def _seconds(receipt: Receipt) -> dict[str, float | None]:
    times, steps, goodput = receipt.compile.time_s, receipt.steps, receipt.goodput
    return {
        "wall": goodput.wall_s if goodput is not None else None,
        "goodput": goodput.goodput_s if goodput is not None else None,
        "compile": times.total,
        "recompile": times.recompile,
        "median step": steps.median if steps is not None else None,
        "longest step": steps.max if steps is not None else None,
    }


def _numbers(before: Receipt, after: Receipt) -> tuple[NumberChange, ...]:
    """Figures that one of the two measured; of tracked runs only those of one lane."""
    left, right = dict(figures.figures(before)), dict(figures.figures(after))
    for name, old, new in _tracked_pairs(before, after):
        if old.config == new.config:
            for side, run in ((left, old), (right, new)):
                told = figures.tracked_figures(run).items()
                side.update({f"{name}: {figure}": value for figure, value in told})
    names = dict.fromkeys((*left, *right))
    return tuple(NumberChange(name, left.get(name), right.get(name)) for name in names)


def _tracked_lanes(before: Receipt, after: Receipt) -> tuple[FieldChange, ...]:
    """Why tracked runs of one name are not compared: what differs in their configuration."""
    return tuple(
        change
        for name, old, new in _tracked_pairs(before, after)
        for change in _field_changes(old.config, new.config, f"tracked.{name}")
    )


def _tracked_pairs(
    before: Receipt, after: Receipt
) -> Iterable[tuple[str, TrackedRecord, TrackedRecord]]:
    left, right = figures.tracked_lanes(before), figures.tracked_lanes(after)
    return ((name, left[name], right[name]) for name in left if name in right)
