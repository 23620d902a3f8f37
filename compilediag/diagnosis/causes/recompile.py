"""All causes of one recompile: every guard of the nearest cache entry that had to be true."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from compilediag.diagnosis.causes.acts import COMBINATION
from compilediag.diagnosis.causes.buffer_companions import with_companions
from compilediag.diagnosis.causes.conditions import (
    Condition,
    condition_of,
    conditions_of,
    false_guard_of,
)
from compilediag.diagnosis.causes.nearest import far, independent, nearest
from compilediag.diagnosis.causes.novelty import combination_in, with_parts, with_variables
from compilediag.diagnosis.codes import info
from compilediag.diagnosis.findings import Cause, Confidence, writer_seen
from compilediag.diagnosis.guards.reason import parse_reasons
from compilediag.timeline.timeline import Recompile
from compilediag_harness.wire import Location


@dataclass(frozen=True, slots=True)
class MissedEntry:
    """A cache entry that did not fit."""

    compile_id: str
    guards: tuple[Cause, ...]
    """Its false guards without those that follow from others, in guard order."""
    left_out: int | None
    """False guards beyond those in `guards`; None where the text of a log names the first only."""


class Explained(NamedTuple):
    """Why a recompile happened."""

    causes: tuple[Cause, ...]
    """The primary one first. All of them must be removed to avoid the recompile."""
    entries: tuple[MissedEntry, ...] = ()
    """Those that were evaluated in the process, nearest first; of a text those that it names."""


def causes_of(recompile: Recompile) -> tuple[Cause, ...]:
    """The causes of a recompile, the primary one first."""
    return explained(recompile).causes


def explained(recompile: Recompile) -> Explained:
    """The causes of a recompile, and the cache entries they were found in.

    They come from the guards evaluated in the process; where those are missing or incomplete
    (`problem`), from torch's printed reasons, with confidence "text".
    """
    if recompile.entries and recompile.problem is None:
        found = _from_entries(recompile)
        if found.causes:
            return found
    return _from_text(recompile.reasons, recompile.frame, recompile.problem)


def _from_entries(recompile: Recompile) -> Explained:
    entries, reasons, frame = recompile.entries, recompile.reasons, recompile.frame
    conditions = with_parts([conditions_of(entry, reasons, frame) for entry in entries])
    everywhere = [condition for entry in conditions for condition in entry]
    remaining = [with_companions(independent(entry), everywhere) for entry in conditions]
    if not recompile.entries_left_out:
        remaining = with_variables(remaining)
    together = combination_in(remaining)
    causes = (_combined(together),) if together else _ordered(nearest(remaining))
    missed = [
        (own, MissedEntry(entry.compile_id, _listed(own), entry.left_out + len(all_) - len(own)))
        for entry, all_, own in zip(entries, conditions, remaining, strict=True)
    ]
    missed.sort(key=lambda pair: far(pair[0]))
    return Explained(causes, tuple(entry for _, entry in missed))


def _listed(conditions: Sequence[Condition]) -> tuple[Cause, ...]:
    return tuple(_cause(condition, primary=False) for condition in conditions)


def _from_text(reasons: Sequence[str], frame: Location, problem: str | None) -> Explained:
    """torch prints a reason for each entry, that of the most recently used one first; the text does
    not show which entry is nearest."""
    if not reasons:
        return Explained((_unclassified(problem),))
    parsed = [parse_reasons(text) for text in reasons]
    printed = [
        [
            condition_of(false_guard_of(reason), position, frame, reason)
            for position, reason in enumerate(of_entry)
        ]
        for of_entry in parsed
    ]
    entries = tuple(
        MissedEntry(of_entry[0].compile_id, _listed(conditions), None)
        for of_entry, conditions in zip(parsed, printed, strict=True)
        if of_entry[0].compile_id is not None
    )
    return Explained(_ordered(printed[0]), entries)


def _ordered(conditions: Sequence[Condition]) -> tuple[Cause, ...]:
    """What no entry accepts first: a value that was compiled for before recompiles only together
    with it. Parameters are frozen and released by what changed beside them."""
    ranked = sorted(
        conditions,
        key=lambda each: (
            each.novel is False,
            (each.decision.code, each.decision.kind) == ("CD106", "parameter")
            and any(other.decision.code == "CD104" for other in conditions),
            each.decision.order,
            each.position,
        ),
    )
    return tuple(_cause(condition, primary=not index) for index, condition in enumerate(ranked))


def _cause(condition: Condition, *, primary: bool) -> Cause:
    decision, false = condition.decision, condition.false
    confidence: Confidence = "text" if condition.printed else "exact"
    changed = false.changed
    seen = changed.stack[:1] if changed and writer_seen(changed, false.writers) else None
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
        writers=seen or false.writers,
        confidence=confidence,
        line_text=condition.line_text,
        novel=condition.novel,
        own=false.own,
        branched_on=false.branched_on,
        changed=changed,
        changed_by=false.changed_by,
    )


def _combined(conditions: Sequence[Condition]) -> Cause:
    """Values that were compiled for before, each with others, and never with one another."""
    parts = _listed(conditions)
    location = next((part.location for part in parts if part.location is not None), None)
    return Cause(
        rule=COMBINATION,
        family=info(COMBINATION).family,
        kind=None,
        source="",
        variable=", ".join(_distinct_names(conditions)),
        guard="",
        expected=None,
        actual=", ".join(part.value for part in parts),
        location=location,
        primary=True,
        writers=tuple(dict.fromkeys(writer for part in parts for writer in part.writers)),
        line_text=next((part.line_text for part in parts if part.location == location), None),
        parts=parts,
        novel=False,
    )


def _distinct_names(conditions: Sequence[Condition]) -> Iterator[str]:
    """The variables; of one that stands there twice, such as a tensor whose size and dtype met,
    with what of it."""
    often = Counter(condition.variable for condition in conditions)
    for condition in conditions:
        name, aspect = condition.variable, condition.guard.aspect
        yield f"{name} ({aspect})" if often[name] > 1 and aspect else name


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
