"""Which finding of a receipt is about a cause, a graph break or a frame: its fix is theirs."""

from __future__ import annotations

from compilediag.compare.keys import function_key
from compilediag.receipt.schema.compiles import EventCause, FindingRecord, GraphBreak
from compilediag.receipt.schema.evidence import BreakEvidence
from compilediag.receipt.schema.receipt import Receipt


def finding_of_cause(receipt: Receipt, cause: EventCause) -> FindingRecord | None:
    """The finding that is about a cause: the one it names; in a receipt that names none, that of
    the same rule and variable, and of the same place if several are."""
    if cause.finding is not None:
        return next((item for item in receipt.findings if item.id == cause.finding), None)
    rule = cause.rule or cause.family
    same = [
        item
        for item in receipt.findings
        if item.variable == cause.variable and rule in (item.rule, item.family)
    ]
    place = cause.file, cause.function
    exact = [
        item
        for item in same
        if item.location is not None and (item.location.file, item.location.function) == place
    ]
    return exact[0] if exact else same[0] if len(same) == 1 else None


def finding_of_break(receipt: Receipt, site: GraphBreak) -> FindingRecord | None:
    """The finding that is about a graph break; torch's own lines are blamed on who called them."""
    same = [
        item
        for item in receipt.findings
        if item.rule.startswith(("CD2", "CD904", "CD152"))
        and (broken := BreakEvidence.of(item.evidence)).reason == site.reason
        and broken.category == site.category
    ]
    here = [
        item
        for item in same
        if item.location is not None
        and (item.location.file, item.location.line) == (site.file, site.line)
    ]
    return here[0] if here else same[0] if len(same) == 1 else None


def finding_of_frame(receipt: Receipt, file: str, line: int, function: str) -> FindingRecord | None:
    """What sent a frame to eager: its own finding, or the graph break that names it."""
    for item in receipt.findings:
        if item.rule in ("CD904", "CD152", "CD210", "CD154") and item.location is not None:
            place = item.location
            if place.file == file and function_key(place.function) == function:
                return item
    for item in receipt.findings:
        if (file, line) in (BreakEvidence.of(item.evidence).eager_frames or ()):
            return item
    return None
