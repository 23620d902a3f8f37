"""The part of a run that a finding is about, and how much of it another run has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from compilediag.compare.keys import (
    BreakKey,
    CauseKey,
    break_key,
    cause_key,
    function_key,
    portable_file,
)
from compilediag.receipt.schema.compiles import FindingRecord
from compilediag.receipt.schema.receipt import Receipt

Unit = Literal["recompiles", "graph breaks", "findings"]


@dataclass(frozen=True, slots=True)
class Subject:
    """A finding by what is found again in other runs."""

    unit: Unit
    causes: frozenset[CauseKey] = frozenset()
    breaks: frozenset[BreakKey] = frozenset()
    key: tuple[str, ...] = ()
    """Rule, variable and place, of a finding without a recompile or break of its own."""


def subject_of(finding: FindingRecord, receipt: Receipt) -> Subject:
    """What a finding of the receipt is about. That of a graph break is about the break, also where
    what goes on behind it is recompiled."""
    breaks = frozenset(
        break_key(site) for site in receipt.compile.breaks if site.finding == finding.id
    )
    if breaks:
        return Subject("graph breaks", breaks=breaks)
    causes = frozenset(
        cause_key(cause)
        for event in receipt.compile.events
        for cause in event.causes
        if cause.finding == finding.id
    )
    if causes:
        return Subject("recompiles", causes=causes)
    return Subject("findings", key=finding_key(finding))


def finding_key(finding: FindingRecord) -> tuple[str, ...]:
    """What makes two findings of two runs the same."""
    place = finding.location
    where = (portable_file(place.file), function_key(place.function)) if place else ()
    return (finding.rule, finding.variable or "", *where)


def count_in(subject: Subject, receipt: Receipt) -> int:
    """How often a run has it."""
    compiled = receipt.compile
    if subject.causes:
        return sum(
            any(cause_key(cause) in subject.causes for cause in event.causes)
            for event in compiled.events
            if event.kind == "recompile"
        )
    if subject.breaks:
        return sum(break_key(site) in subject.breaks for site in compiled.breaks)
    return sum(finding_key(item) == subject.key for item in receipt.findings)
