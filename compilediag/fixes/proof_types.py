"""Types of `fix`: a finding by what is found again in other runs, and what was tried for it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

from msgspec.structs import replace

from compilediag.certify.points import Certificate
from compilediag.compare.keys import BreakKey, CauseKey, build_break_key, build_cause_key
from compilediag.receipt.finding_keys import normalize_file, normalize_function
from compilediag.receipt.schema.compiles import FindingRecord, RefusedChange
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.changes import ProgramChange, is_said_in
from compilediag.rules.recompiles import ONE_GRAPH_EACH

Unit = Literal["recompiles", "graph breaks", "findings"]

_SETTING = re.compile(r"config\.(\w+) = \w+")
"""Of Dynamo, in advice."""

_NO_EDIT = re.compile(
    rf"{re.escape(ONE_GRAPH_EACH.fix)}|(?:[^:]*: )?(?:leave|accept) it(?!.*\bor |.*; else)"
)
"""Advice that asks for no edit."""

_EDIT = "change the line, take it out of what is compiled, or leave it"


@dataclass(frozen=True, slots=True)
class FindingIdentity:
    """The identity of a finding in other runs of the program."""

    unit: Unit
    causes: frozenset[CauseKey] = frozenset()
    breaks: frozenset[BreakKey] = frozenset()
    key: tuple[str, ...] = ()  #: Rule, variable and place, without recompile or break of its own.


def identify_finding(finding: FindingRecord, receipt: Receipt) -> FindingIdentity:
    """Identify a finding of the receipt. That of a graph break is known by the break, also where
    what goes on behind it is recompiled."""
    breaks = frozenset(
        build_break_key(site) for site in receipt.compile.breaks if site.finding == finding.id
    )
    if breaks:
        return FindingIdentity("graph breaks", breaks=breaks)
    causes = frozenset(
        build_cause_key(cause)
        for event in receipt.compile.events
        for cause in event.causes
        if cause.finding == finding.id
    )
    if causes:
        return FindingIdentity("recompiles", causes=causes)
    return FindingIdentity("findings", key=make_finding_key(finding))


def make_finding_key(finding: FindingRecord) -> tuple[str, ...]:
    """Make the key that two findings of two runs share where they are the same."""
    place = finding.location
    where = (normalize_file(place.file), normalize_function(place.function)) if place else ()
    return (finding.rule, finding.variable or "", *where)


def count_finding(identity: FindingIdentity, receipt: Receipt) -> int:
    """Count how often a run has a finding: its recompiles, its graph breaks, or itself."""
    compiled = receipt.compile
    if identity.causes:
        return sum(
            any(build_cause_key(cause) in identity.causes for cause in event.causes)
            for event in compiled.events
            if event.kind == "recompile"
        )
    if identity.breaks:
        return sum(build_break_key(site) in identity.breaks for site in compiled.breaks)
    return sum(make_finding_key(finding) == identity.key for finding in receipt.findings)


# --- what was tried ------------------------------------------------------------------------------


class ListedChanges(NamedTuple):
    """The changes that there are to try for a finding."""

    possible: tuple[ProgramChange, ...]
    impossible: tuple[RefusedChange, ...]  #: Edits that files do not allow, each with the reason.


@dataclass(frozen=True, slots=True)
class TriedChange:
    """A change and what it did for one finding."""

    change: ProgramChange
    certificate: Certificate
    """Its first point is that of the finding."""
    is_final: bool
    """False: of a search, by short runs that compile with the backend "eager"."""
    runs: int = 1
    """Executions with the change."""
    beside: tuple[str, ...] = ()
    """Ids of findings whose changes were there too: it was not seen alone."""

    @property
    def proved(self) -> bool:
        """True where the program with the change was certified as a whole."""
        return self.is_final and self.certificate.verdict == "proved"

    @property
    def risk(self) -> str:
        """A sentence on what else the change does, and what it needs."""
        if not self.beside:
            return self.change.risk
        numbers = " and ".join(finding_id[1:] for finding_id in self.beside)
        word = "finding" if len(self.beside) == 1 else "findings"
        return f"together with the change of {word} {numbers}; {self.change.risk}"


@dataclass(frozen=True, slots=True)
class FindingResult:
    """The result of a campaign for one finding."""

    finding: FindingRecord
    tried: tuple[TriedChange, ...]
    listed: ListedChanges  #: What there was to try.

    @property
    def proof(self) -> TriedChange | None:
        """The change that is proved; None where none is."""
        return next((change for change in self.tried if change.proved), None)

    @property
    def advised(self) -> FindingRecord:
        """The finding, without advice that was tried here and refused."""
        fix = self.finding.fix
        setting = _SETTING.search(fix.summary)
        for tried in self.tried if self.proof is None else ():
            if tried.certificate.verdict != "refused":
                continue
            if is_said_in(tried.change, fix.summary):
                said = f"{_EDIT}: its recipe was tried here and refused"
                fix = replace(fix, summary=said, recipe=None, caveat=None)
            elif setting is not None and setting[1].upper() in tried.change.line.upper():
                others = fix.summary.rpartition("; or set ")[0]
                said, recipe = others or f"{_EDIT}: no setting helps", others and fix.recipe
                fix = replace(fix, summary=said, recipe=recipe or None)
            else:
                continue
            return replace(self.finding, fix=fix)
        return self.finding

    @property
    def asks_for_edit(self) -> bool:
        """True where something is advised that `certify` can check."""
        return _NO_EDIT.match(self.advised.fix.summary) is None
