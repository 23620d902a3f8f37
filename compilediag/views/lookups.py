"""Looks up what belongs to a finding elsewhere in the receipt: its change, writers, compiles."""

from __future__ import annotations

from functools import lru_cache

from compilediag.diagnosis.codes import BLIND, OUTLOOK
from compilediag.receipt.schema.compiles import (
    CompileEvent,
    EnteredAt,
    EventCause,
    FindingRecord,
    Writer,
)
from compilediag.receipt.schema.evidence import AnyEvidence, GuardEvidence
from compilediag.receipt.schema.receipt import Receipt


def numbered(receipt: Receipt) -> list[tuple[int, FindingRecord]]:
    """Number the findings as `compilediag explain N` takes them: 1 is "F1"."""
    return list(enumerate(receipt.findings, 1))


def main_findings(receipt: Receipt) -> list[tuple[int, FindingRecord]]:
    """List the findings shown one by one: not notes, the outlook, or why the verdict is blind."""
    apart = OUTLOOK | BLIND if receipt.verdict == "blind" else OUTLOOK
    listed = [pair for pair in numbered(receipt) if pair[1].severity != "info"]
    return [(number, item) for number, item in listed if item.rule not in apart]


def notes(receipt: Receipt) -> list[tuple[int, FindingRecord]]:
    """List the findings that are for information only."""
    listed = [pair for pair in numbered(receipt) if pair[1].severity == "info"]
    return [(number, item) for number, item in listed if item.rule not in OUTLOOK]


def changes(finding: FindingRecord) -> list[tuple[str, str]]:
    """List every distinct pair of values the evidence has, in the order they appeared."""
    pairs = GuardEvidence.of(finding.evidence).values
    return [(before, after) for before, after in pairs if before is not None and after is not None]


def change(finding: FindingRecord, receipt: Receipt) -> tuple[str, str] | None:
    """Find what the guard expected and what it met; None where the evidence lacks either."""
    guard = GuardEvidence.of(finding.evidence)
    if guard.expected is not None and guard.actual is not None:
        return guard.expected, guard.actual
    for cause in _own_causes(finding, receipt):
        if cause.expected is not None and cause.actual is not None:
            return cause.expected, cause.actual
    return None


def _own_causes(finding: FindingRecord, receipt: Receipt) -> list[EventCause]:
    """List the causes that it explains; a graph break has none of its own, but those it made."""
    return [] if finding.rule.startswith("CD2") else causes(finding, receipt)


def writers(finding: FindingRecord, receipt: Receipt) -> list[Writer]:
    """List the functions that write the variable, once each: of the causes, else the evidence."""
    found = [writer for cause in _own_causes(finding, receipt) for writer in cause.writers]
    if not found:
        known = GuardEvidence.of(finding.evidence).writers
        named = {w: Writer(function=w, file="", line=0) for w in known if isinstance(w, str)}
        found = [named[w] if isinstance(w, str) else w for w in known]
    found.sort(key=lambda item: item.evidence != "witnessed")
    return [item for index, item in enumerate(found) if item not in found[:index]]


def guessed(finding: FindingRecord, receipt: Receipt) -> list[Writer]:
    """List writers that only the source names, of recompiles whose change was not seen."""
    found = writers(finding, receipt)
    seen = {(w.file, w.line) for w in found if w.evidence == "witnessed"}
    return [w for w in found if w.evidence != "witnessed" and (w.file, w.line) not in seen]


def events(finding: FindingRecord, receipt: Receipt) -> list[CompileEvent]:
    """List the compiles that the finding explains, else those that it names, in time order."""
    compiles = receipt.compile.events
    explained = _by_finding(_Same(compiles)).get(finding.id)
    if explained:
        return explained
    ids = frozenset(AnyEvidence.of(finding.evidence).compile_ids)
    named = [item for item in compiles if item.compile_id in ids]
    # Ids of compiles repeat after a reset and in every process: take those that the cause is of.
    return [item for item in named if any(explains(finding, c) for c in item.causes)] or named


class _Same:
    """Compiles as the key of a cache: equal to the very same ones only."""

    def __init__(self, events: tuple[CompileEvent, ...]) -> None:
        self.events = events

    def __hash__(self) -> int:
        return id(self.events)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.events is other.events


@lru_cache(maxsize=4)
def _by_finding(compiles: _Same) -> dict[str | None, list[CompileEvent]]:
    """Group compiles by the id of the finding that explains them; of both there may be
    thousands."""
    found: dict[str | None, list[CompileEvent]] = {}
    for item in compiles.events:
        for name in dict.fromkeys(cause.finding for cause in item.causes):
            found.setdefault(name, []).append(item)
    return found


def calls(finding: FindingRecord, receipt: Receipt) -> list[EnteredAt]:
    """List the program's own calls that led to the finding, each line once, its own first."""
    own = [] if finding.entered_at is None else [finding.entered_at]
    again = [item.entered_at for item in events(finding, receipt) if item.entered_at is not None]
    found = {(item.file, item.line): item for item in reversed([*own, *again])}
    return [found[key] for key in dict.fromkeys((item.file, item.line) for item in [*own, *again])]


def causes(finding: FindingRecord, receipt: Receipt) -> list[EventCause]:
    """List the false guards that the finding explains."""
    found = (cause for event in events(finding, receipt) for cause in event.causes)
    return [cause for cause in found if explains(finding, cause)]


def explains(finding: FindingRecord, cause: EventCause) -> bool:
    """Whether the finding explains the cause of a compile."""
    if cause.finding is not None:
        return cause.finding == finding.id
    # Older receipts have no ids of findings in their causes.
    return cause.family == finding.family and cause.variable == finding.variable
