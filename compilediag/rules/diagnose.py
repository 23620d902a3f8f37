"""Runs the rules, merges cause and symptom, orders by cost, gives the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from msgspec.structs import replace

from compilediag.diagnosis.causes.of_run import RunCauses
from compilediag.diagnosis.codes import SEVERITIES, info
from compilediag.diagnosis.findings import CauseId, Entered, Finding, Rule, entered_by, place_of
from compilediag.diagnosis.reconcile import Agreement
from compilediag.receipt.schema.compiles import Place
from compilediag.rules.absorption import Absorption, absorb
from compilediag.rules.analysis import AnalysisRule, analysis_of
from compilediag.rules.catalogue import ALL_ABSORPTIONS, ALL_RULES
from compilediag.rules.levers import with_levers
from compilediag.timeline.breaks import BreakLine
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import UserCall

Verdict = Literal["clean", "findings", "blind"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong with a run, the most expensive first."""

    findings: tuple[Finding, ...]
    """With ids F1, F2..."""
    verdict: Verdict
    agreement: Agreement
    causes: RunCauses = field(default_factory=RunCauses)
    """Of every recompile."""

    @property
    def finding_ids(self) -> Mapping[CauseId | BreakLine, str]:
        """The id of the finding that explains each cause of a recompile and each graph break."""
        return {what: each.id for each in reversed(self.findings) for what in each.about}


def diagnose(
    timeline: Timeline,
    rules: Sequence[Rule] = ALL_RULES,
    absorptions: Sequence[Absorption] = ALL_ABSORPTIONS,
) -> Diagnosis:
    """Findings of all rules over a run, and what may be concluded from it."""
    analysis = analysis_of(timeline)
    found = [
        finding
        for rule in rules
        for finding in (rule.find(analysis) if isinstance(rule, AnalysisRule) else rule(timeline))
    ]
    for absorption in absorptions:
        found = absorb(found, absorption)
    # Of steps and seconds that the record of the run does not have, zero would be a claim.
    stepped, measured = timeline.observes("steps"), timeline.observes("metrics_rows")
    known = [
        replace(
            each,
            steps=each.steps if stepped else (),
            cost_s=each.cost_s if measured else None,
        )
        for each in with_levers(found, timeline, analysis.causes)
    ]
    ordered = sorted(with_callers(known, timeline, analysis.causes), key=_importance)
    findings = tuple(replace(each, id=f"F{n}") for n, each in enumerate(ordered, start=1))
    return Diagnosis(findings, _verdict(findings), analysis.agreement, analysis.causes)


def _importance(finding: Finding) -> tuple[bool, float, int]:
    """Doubt about the evidence first, then seconds, then severity; else the rules' own order."""
    return (
        not info(finding.rule).blinds,
        -(finding.cost_s or 0.0),
        SEVERITIES.index(finding.severity),
    )


def _verdict(findings: Iterable[Finding]) -> Verdict:
    """Blind overrules findings: part of what happened was not seen. Information alone is clean."""
    if any(info(finding.rule).blinds for finding in findings):
        return "blind"
    if any(finding.severity != "info" for finding in findings):
        return "findings"
    return "clean"


def with_callers(
    findings: Iterable[Finding], timeline: Timeline, causes: RunCauses
) -> Sequence[Finding]:
    """The findings, each with the call of the program's own that led to it first; those of which a
    rule has determined it, or nothing is recorded, as they are."""
    known = _known(timeline, causes)
    return [_with_caller(finding, known) for finding in findings]


class _Inside(NamedTuple):
    """A line of the program's own inside what was compiled: nearer than the call of it."""

    entered_at: UserCall
    entered_from: str = ""


def _known(
    timeline: Timeline, causes: RunCauses
) -> Mapping[CauseId | BreakLine | Place | None, Entered]:
    found: dict[CauseId | BreakLine | Place | None, Entered] = {}
    for recompile in timeline.recompiles:
        for cause in causes.of(recompile):
            own = cause.own
            found.setdefault(cause.id, recompile if own is None else _Inside(own))
    for site in timeline.breaks:
        found.setdefault(site.at, site)
    for frame in timeline.frames:
        found.setdefault(place_of(frame.where), frame)
    for skipped in timeline.skipped:
        found.setdefault(place_of(skipped.frame), skipped)
    return found


def _with_caller(
    finding: Finding, known: Mapping[CauseId | BreakLine | Place | None, Entered]
) -> Finding:
    if finding.entered_at is not None or finding.entered_from:
        return finding
    for explained in (*finding.about, finding.location):
        found = known.get(explained)
        if found is not None and (found.entered_at is not None or found.entered_from):
            return entered_by(finding, found)
    return finding
