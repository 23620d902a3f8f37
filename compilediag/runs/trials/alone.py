"""Each change by itself, until one holds for its finding."""

from __future__ import annotations

from collections.abc import Sequence

from compilediag.fixes.candidates.limits import sufficient
from compilediag.fixes.changes import Change
from compilediag.runs.trials.judging import judged
from compilediag.runs.trials.running import trial_of
from compilediag.runs.trials.state import Campaign, Evidence, came_again, keep


def try_each(
    campaign: Campaign, finding: str, candidates: Sequence[Change], evidence: Evidence
) -> None:
    """Until one holds; first those that ran for another finding."""
    if not came_again(finding, evidence):
        campaign.notes.append(f"finding {finding[1:]} did not come again")
        return
    known = [
        change
        for key in evidence.trials
        for change in key
        if change not in candidates and not change.searches
    ]
    for tried in (*known, *candidates):
        change = tried
        trial = trial_of(campaign, change.line, (change,), evidence.trials)
        certificate = judged(campaign, evidence, finding, [trial], (change,))
        if certificate.holds and change.searches and trial.observed is not None:
            change = sufficient(change, trial.observed.receipt)
            trial = trial_of(campaign, change.line, (change,), evidence.trials)
            certificate = judged(campaign, evidence, finding, [trial], (change,))
        if tried in candidates or certificate.holds:
            keep(campaign, finding, change, certificate, [trial])
        if certificate.holds:
            campaign.chosen[finding] = change
            return
