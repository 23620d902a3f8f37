"""All causes of one recompile: every guard of the nearest cache entry that had to be true."""

from __future__ import annotations

from collections.abc import Sequence

from compilediag.diagnosis.causes.buffer_companions import with_companions
from compilediag.diagnosis.causes.conditions import (
    Condition,
    condition_of,
    conditions_of,
    false_guard_of,
)
from compilediag.diagnosis.causes.nearest import independent, nearest
from compilediag.diagnosis.codes import info
from compilediag.diagnosis.findings import Cause, Confidence
from compilediag.diagnosis.guards.reason import parse_reason
from compilediag.timeline.timeline import Recompile
from compilediag_harness.wire import EntryDiff, Location


def causes_of(recompile: Recompile) -> tuple[Cause, ...]:
    """The causes of a recompile, the primary one first. All of them must be removed to avoid it.

    They come from the guards evaluated in the process; where those are missing or incomplete
    (`problem`), from torch's printed reasons, with confidence "text".
    """
    if recompile.entries and recompile.problem is None:
        found = _from_entries(recompile.entries, recompile.reasons, recompile.frame)
        if found:
            return found
    return _from_text(recompile.reasons, recompile.frame, recompile.problem)


def _from_entries(
    entries: Sequence[EntryDiff], reasons: tuple[str, ...], frame: Location
) -> tuple[Cause, ...]:
    conditions = [conditions_of(entry, reasons, frame) for entry in entries]
    everywhere = [condition for entry in conditions for condition in entry]
    remaining = [with_companions(independent(entry), everywhere) for entry in conditions]
    chosen = nearest(remaining)
    return _ordered(chosen)


def _from_text(reasons: Sequence[str], frame: Location, problem: str | None) -> tuple[Cause, ...]:
    """The first printed reason is of the most recently used entry; the text
    does not show which entry is nearest."""
    printed = reasons[0] if reasons else None
    reason = parse_reason(printed) if printed is not None else None
    if reason is None:
        return (_unclassified(problem),)
    false = false_guard_of(reason)
    return _ordered((condition_of(false, 0, frame, reason),))


def _ordered(conditions: Sequence[Condition]) -> tuple[Cause, ...]:
    """What no entry accepts first: a value that was compiled for before recompiles only together
    with it."""
    ranked = sorted(
        conditions,
        key=lambda each: (each.false.novel is False, each.decision.order, each.position),
    )
    return tuple(_cause(condition, primary=not index) for index, condition in enumerate(ranked))


def _cause(condition: Condition, *, primary: bool) -> Cause:
    decision, false = condition.decision, condition.false
    confidence: Confidence = "text" if condition.printed else "exact"
    return Cause(
        rule=decision.code,
        family=info(decision.code).family,
        kind=decision.kind,
        source=false.source,
        variable=condition.variable,
        guard=false.text,
        expected=condition.expected,
        actual=condition.actual,
        location=condition.place,
        primary=primary,
        writers=false.writers,
        confidence=confidence,
        line_text=condition.line_text,
        changed=false.changed,
        changed_by=false.changed_by,
    )


def _unclassified(problem: str | None) -> Cause:
    """torch asked why, and there is neither a guard nor a reason."""
    return Cause(
        rule="CD190",
        family=info("CD190").family,
        kind="no_reason",
        source="",
        variable="",
        guard=problem or "",
        expected=None,
        actual=None,
        location=None,
        primary=True,
        confidence="text",
    )
