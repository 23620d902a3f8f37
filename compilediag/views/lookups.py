"""Looks up what belongs to a finding elsewhere in the receipt: its change, writers, compiles."""

from __future__ import annotations

import shlex
from functools import lru_cache

from compilediag.diagnosis.codes import BLIND, OUTLOOK, REGISTER
from compilediag.receipt.schema.compiles import (
    CompileEvent,
    EventCause,
    FindingRecord,
    UserCallRecord,
    Writer,
    mask_indices,
)
from compilediag.receipt.schema.evidence import AnyEvidence, GuardEvidence
from compilediag.receipt.schema.receipt import Receipt
from compilediag_harness.redaction.recognise import is_redacted

UNKNOWN_TARGET = "TARGET"


def format_target(receipt: Receipt) -> str:
    """Format the command line of a run for a shell; "TARGET" where it is not known, a secret in it
    was replaced, or it is that of a notebook's kernel."""
    words = receipt.header.run.argv_redacted
    unusable = any(is_redacted(word) or word.endswith("ipykernel_launcher.py") for word in words)
    return ("" if unusable else shlex.join(words)) or UNKNOWN_TARGET


def number_findings(receipt: Receipt) -> list[tuple[int, FindingRecord]]:
    """Number the findings as `compilediag explain N` takes them: 1 is "F1"."""
    return list(enumerate(receipt.findings, 1))


def list_main_findings(receipt: Receipt) -> list[tuple[int, FindingRecord]]:
    """List the findings shown one by one: no notes, consequences, outlook, reasons of blindness."""
    apart = OUTLOOK | BLIND if receipt.verdict == "blind" else OUTLOOK
    listed = [pair for pair in list_roots(receipt) if pair[1].severity != "info"]
    return [(number, finding) for number, finding in listed if finding.rule not in apart]


def list_notes(receipt: Receipt) -> list[tuple[int, FindingRecord]]:
    """List the findings that are for information only, without what follows from another one."""
    listed = [pair for pair in list_roots(receipt) if pair[1].severity == "info"]
    return [(number, finding) for number, finding in listed if finding.rule not in OUTLOOK]


def list_roots(receipt: Receipt) -> list[tuple[int, FindingRecord]]:
    """List the findings that follow from no other one."""
    return [pair for pair in number_findings(receipt) if pair[1].follows is None]


def list_followers(receipt: Receipt) -> list[tuple[int, FindingRecord]]:
    """List the findings that follow from another one, of a graph break."""
    return [pair for pair in number_findings(receipt) if pair[1].follows is not None]


def list_changes(finding: FindingRecord) -> list[tuple[str, str]]:
    """List every distinct pair of values the evidence has, in the order they appeared."""
    pairs = GuardEvidence.parse(finding.evidence).values
    return [(before, after) for before, after in pairs if before is not None and after is not None]


def list_history(finding: FindingRecord, receipt: Receipt) -> list[str]:
    """List what the variable was in the graphs of the frame that it made compile first, in order,
    else what the guards of single recompiles say; empty for a condition on sizes."""
    register = REGISTER.get(finding.rule)
    if finding.variable is None or register is None or register.changed == "condition":
        return []
    names = (finding.variable, mask_indices(finding.variable))
    kind = GuardEvidence.parse(finding.evidence).kind
    first = [(event.process, event.frame) for event in list_compiles(finding, receipt)[:1]]
    rows = [row for row in receipt.compile.varied if row.variable in names]
    rows = [row for row in rows if [(row.process, row.frame)] == first or not first]
    rows.sort(key=lambda row: (row.rule != finding.rule, row.kind != kind))
    values = [graph.value for graph in rows[0].values] if rows else []
    if len(values) < 2:
        change = find_change(finding, receipt)
        changes = list_changes(finding) or ([change] if change else [])
        values = [value for change in changes for value in change]
    distinct = [value for n, value in enumerate(values) if not n or value != values[n - 1]]
    return distinct if len(distinct) > 1 else []


def find_change(finding: FindingRecord, receipt: Receipt) -> tuple[str, str] | None:
    """Find what the guard expected and what it met; None where the evidence lacks either."""
    guard = GuardEvidence.parse(finding.evidence)
    if guard.expected is not None and guard.actual is not None:
        return guard.expected, guard.actual
    for cause in _list_own_causes(finding, receipt):
        if cause.expected is not None and cause.actual is not None:
            return cause.expected, cause.actual
    return None


def _list_own_causes(finding: FindingRecord, receipt: Receipt) -> list[EventCause]:
    """List the causes that it explains; a graph break has none of its own, but those it made."""
    return [] if finding.rule.startswith("CD2") else list_causes(finding, receipt)


def list_writers(finding: FindingRecord, receipt: Receipt) -> list[Writer]:
    """List the functions that write the variable, once each: of the causes, else the evidence."""
    writers = [writer for cause in _list_own_causes(finding, receipt) for writer in cause.writers]
    if not writers:
        known = GuardEvidence.parse(finding.evidence).writers
        named = {w: Writer(function=w, file="", line=0) for w in known if isinstance(w, str)}
        writers = [named[w] if isinstance(w, str) else w for w in known]
    writers.sort(key=lambda writer: writer.evidence != "witnessed")
    return [writer for index, writer in enumerate(writers) if writer not in writers[:index]]


def list_guessed_writers(finding: FindingRecord, receipt: Receipt) -> list[Writer]:
    """List writers that only the source names, of recompiles whose change was not seen."""
    writers = list_writers(finding, receipt)
    seen = {(w.file, w.line) for w in writers if w.evidence == "witnessed"}
    return [w for w in writers if w.evidence != "witnessed" and (w.file, w.line) not in seen]


def list_compiles(finding: FindingRecord, receipt: Receipt) -> list[CompileEvent]:
    """List the compiles that the finding explains, else those that it names, in time order."""
    compiles = receipt.compile.events
    explained = _group_by_finding(_IdentityKey(compiles)).get(finding.id)
    if explained:
        return explained
    ids = frozenset(AnyEvidence.parse(finding.evidence).compile_ids)
    named = [event for event in compiles if event.compile_id in ids]
    # Ids of compiles repeat after a reset and in every process: take those that the cause is of.
    return [
        event for event in named if any(matches_cause(finding, c) for c in event.causes)
    ] or named


class _IdentityKey:
    """Compiles as the key of a cache: equal to the very same ones only."""

    def __init__(self, events: tuple[CompileEvent, ...]) -> None:
        self.events = events

    def __hash__(self) -> int:
        return id(self.events)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _IdentityKey) and self.events is other.events


@lru_cache(maxsize=4)
def _group_by_finding(compiles: _IdentityKey) -> dict[str | None, list[CompileEvent]]:
    """Group compiles by the id of the finding that explains them; both may be thousands."""
    groups: dict[str | None, list[CompileEvent]] = {}
    for event in compiles.events:
        for name in dict.fromkeys(cause.finding for cause in event.causes):
            groups.setdefault(name, []).append(event)
    return groups


def list_calls(finding: FindingRecord, receipt: Receipt) -> list[UserCallRecord]:
    """List the program's own calls that led to the finding, each line once, its own first."""
    own = [] if finding.entered_at is None else [finding.entered_at]
    compiles = list_compiles(finding, receipt)
    again = [event.entered_at for event in compiles if event.entered_at is not None]
    calls = {(call.file, call.line): call for call in reversed([*own, *again])}
    return [calls[key] for key in dict.fromkeys((call.file, call.line) for call in [*own, *again])]


def list_causes(finding: FindingRecord, receipt: Receipt) -> list[EventCause]:
    """List the false guards that the finding explains."""
    causes = (cause for event in list_compiles(finding, receipt) for cause in event.causes)
    return [cause for cause in causes if matches_cause(finding, cause)]


def matches_cause(finding: FindingRecord, cause: EventCause) -> bool:
    """True if the finding explains the cause of a compile."""
    if cause.finding is not None:
        return cause.finding == finding.id
    # Older receipts have no ids of findings in their causes.
    return cause.family == finding.family and cause.variable == finding.variable
