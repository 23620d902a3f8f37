"""Compares two receipts of one lane: counts, causes, breaks, frames, environment, timings.

Pure. Timings are told and never judged: two machines, or two moments of one, are not comparable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from compilediag.comparison import (
    BreakChange,
    CauseChange,
    CauseKey,
    Comparison,
    CountChange,
    FieldChange,
    FrameChange,
    TimingChange,
)
from compilediag.errors import LanesNotComparable
from compilediag.receipt.parts.compiles import EventCause
from compilediag.receipt.record import as_plain
from compilediag.receipt.schema import Receipt

COUNTS = (
    "frames",
    "compiles",
    "recompiles",
    "graphs",
    "graph_breaks",
    "eager_fallbacks",
    "recompile_limit_hits",
)

_VARYING = frozenset({"load_avg_1m"})
"""Environment facts that differ between any two runs."""


def compare(before: Receipt, after: Receipt) -> Comparison:
    """What changed from `before` to `after`.

    Raises:
        LanesNotComparable: they differ in a field of the lane; the message says in which.
    """
    different = lane_differences(before, after)
    if different:
        told = "; ".join(f"{item.path} is {item.before!r} and {item.after!r}" for item in different)
        raise LanesNotComparable(f"The receipts are of different lanes: {told}.")
    causes = _causes(before, after)
    breaks = _breaks(before, after)
    findings = Counter(_finding_names(before)), Counter(_finding_names(after))
    return Comparison(
        before_id=before.receipt_id,
        after_id=after.receipt_id,
        verdict=(before.verdict, after.verdict),
        status=(before.status, after.status),
        counts=tuple(
            CountChange(name, getattr(before.compile, name), getattr(after.compile, name))
            for name in COUNTS
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
        environment=_field_changes(before.environment, after.environment, "environment"),
        provenance=_field_changes(before.header.provenance, after.header.provenance, "provenance"),
        checks=_field_changes(before.checks, after.checks, "checks"),
        timings=_timings(before, after),
    )


def lane_differences(before: Receipt, after: Receipt) -> tuple[FieldChange, ...]:
    """Fields of the lane that differ; a field that one receipt does not know differs as well."""
    return _field_changes(before.header.lane, after.header.lane, "lane")


def _field_changes(before: Any, after: Any, path: str) -> tuple[FieldChange, ...]:
    left = dict(_flat(as_plain(before), path))
    right = dict(_flat(as_plain(after), path))
    return tuple(
        FieldChange(name, left.get(name), right.get(name))
        for name in dict.fromkeys((*left, *right))
        if left.get(name) != right.get(name) and name.rpartition(".")[2] not in _VARYING
    )


def _flat(value: Any, path: str) -> Iterable[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():  # pyright: ignore[reportUnknownVariableType]
            yield from _flat(item, f"{path}.{key}")
    else:
        yield path, value


def _causes(before: Receipt, after: Receipt) -> list[CauseChange]:
    left, right = _counted_causes(before), _counted_causes(after)
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


def _counted_causes(receipt: Receipt) -> dict[CauseKey, list[EventCause]]:
    """Causes by what makes them the same, one for each recompile they had a part in."""
    found: dict[CauseKey, list[EventCause]] = {}
    for event in receipt.compile.events:
        keys: set[CauseKey] = set()
        for cause in event.causes:
            key = CauseKey(cause.rule or cause.family, cause.variable, cause.file, cause.function)
            if key not in keys:
                keys.add(key)
                found.setdefault(key, []).append(cause)
    return found


def _breaks(before: Receipt, after: Receipt) -> list[BreakChange]:
    sites: dict[tuple[str, str, str | None, str], list[int]] = {}
    counts: Counter[tuple[int, tuple[str, str, str | None, str]]] = Counter()
    for side, receipt in enumerate((before, after)):
        for item in receipt.compile.breaks:
            key = (item.file, item.function, item.category, item.reason)
            sites.setdefault(key, []).append(item.line)
            counts[side, key] += 1
    return [
        BreakChange(*key, before=counts[0, key], after=counts[1, key], line=lines[-1])
        for key, lines in sites.items()
    ]


def _frames(before: Receipt, after: Receipt) -> Iterable[FrameChange]:
    left, right = _frame_totals(before), _frame_totals(after)
    for key in dict.fromkeys((*left, *right)):
        old, new = left.get(key, (0, False)), right.get(key, (0, False))
        if old != new or (key in left) != (key in right):
            yield FrameChange(
                file=key[0],
                function=key[1],
                before=old[0],
                after=new[0],
                eager_before=old[1],
                eager_after=new[1],
                present_before=key in left,
                present_after=key in right,
            )


def _frame_totals(receipt: Receipt) -> dict[tuple[str, str], tuple[int, bool]]:
    """Compiles, and whether it ran eager, by file and function: over epochs and processes."""
    totals: dict[tuple[str, str], tuple[int, bool]] = {}
    for item in receipt.compile.frames_detail:
        key = item.frame.file, item.frame.function
        compiles, eager = totals.get(key, (0, False))
        totals[key] = compiles + item.compiles, eager or item.ran_eager
    return totals


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
