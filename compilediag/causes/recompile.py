"""All causes of one recompile: every guard of the nearest cache entry that had to be true."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from compilediag.causes.companions import with_companions
from compilediag.causes.conditions import Condition, condition_of, conditions_of, false_guard_of
from compilediag.causes.nearest import independent, nearest
from compilediag.codes import info
from compilediag.findings import Cause, Confidence
from compilediag.guards.reason import parse_reason
from compilediag.timeline import Recompile

_REMEMBERED = 8192


@functools.lru_cache(maxsize=_REMEMBERED)
def causes_of(recompile: Recompile) -> tuple[Cause, ...]:
    """The causes of a recompile, the primary one first. All of them must be removed to avoid it.

    They come from the guards evaluated in the process; where those are missing or incomplete
    (`problem`), from torch's printed reasons, with confidence "text".
    """
    if recompile.entries and recompile.problem is None:
        found = _from_entries(recompile)
        if found:
            return found
    return _from_text(recompile)


def _from_entries(recompile: Recompile) -> tuple[Cause, ...]:
    entries = [
        conditions_of(entry, recompile.reasons, recompile.frame) for entry in recompile.entries
    ]
    everywhere = [condition for entry in entries for condition in entry]
    remaining = [with_companions(independent(entry), everywhere) for entry in entries]
    chosen = nearest(remaining)
    return _ordered(chosen)


def _from_text(recompile: Recompile) -> tuple[Cause, ...]:
    """The first printed reason is of the most recently used entry; which entry is nearest, the
    text cannot tell."""
    printed = recompile.reasons[0] if recompile.reasons else None
    reason = parse_reason(printed) if printed is not None else None
    if reason is None:
        return (_unclassified(recompile),)
    false = false_guard_of(reason)
    return _ordered((condition_of(false, 0, recompile.frame, reason),))


def _ordered(conditions: Sequence[Condition]) -> tuple[Cause, ...]:
    ranked = sorted(conditions, key=lambda each: (each.decision.order, each.position))
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
    )


def _unclassified(recompile: Recompile) -> Cause:
    """torch asked, and neither a guard nor a reason told why."""
    return Cause(
        rule="CD190",
        family=info("CD190").family,
        kind="no_reason",
        source="",
        variable="",
        guard=recompile.problem or "",
        expected=None,
        actual=None,
        location=None,
        primary=True,
        confidence="text",
    )
