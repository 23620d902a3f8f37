"""Certificates of changes from the runs of a campaign."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compilediag.fixes.certificate import judge
from compilediag.fixes.changes import Change, declared_by
from compilediag.fixes.observed import Observed, Without
from compilediag.fixes.points import Certificate
from compilediag.fixes.same_answers import needs_float64
from compilediag.runs.trials.one import Trial
from compilediag.runs.trials.running import make_trial
from compilediag.runs.trials.sources import labels_of
from compilediag.runs.trials.state import Campaign, Evidence, changes_by_finding


def judged(
    campaign: Campaign,
    evidence: Evidence,
    finding: str,
    trials: Sequence[Trial],
    changes: Sequence[Change],
    others: Sequence[Change] = (),
) -> Certificate:
    """Of changes for a finding, in runs that may have others too."""
    without = evidence.without
    seen = [_observed(trial, without.baseline) for trial in trials]
    labels = [label for change in changes for label in change.labels]
    labels += labels_of(edit for change in changes for edit in change.edits)
    subject = evidence.subjects[finding]
    declared = declared_by(changes, others)

    def certificate() -> Certificate:
        known = replace(evidence.without, precise=campaign.precise)
        return judge(subject, known, seen, labels=labels, declared=declared)

    found = certificate()
    if campaign.precise is None and needs_float64(found, evidence.without, seen, declared):
        campaign.precise = _precise(campaign, evidence.without)
        return certificate()
    return found


def refusal(
    campaign: Campaign, evidence: Evidence, runs: Sequence[Trial], changes: Sequence[Change]
) -> str | None:
    """Why runs with changes prove not all findings that these are for; None where they do."""
    for finding, group in changes_by_finding(campaign).items():
        if {*group} <= {*changes}:
            certificate = judged(campaign, evidence, finding, runs, group, changes)
            if not certificate.holds:
                return f"finding {finding[1:]} is refused: {certificate.reason}"
    return None


def _precise(campaign: Campaign, without: Without) -> Observed | None:
    """The eager run with references; where it does not run, that without any."""
    name = "eager, with calls in float64"
    trial = make_trial(campaign, name, (), stance="force_eager", reference=True)
    return without.reference if trial.problem else trial.observed


def _observed(trial: Trial, baseline: Observed) -> Observed:
    if trial.observed is not None:
        return trial.observed
    return Observed(baseline.receipt, baseline.timeline, trial.problem or "it left no receipt")
