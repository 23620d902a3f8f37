"""The chosen changes in further runs, together where they go together: what is proved."""

from __future__ import annotations

from collections.abc import Sequence

from compilediag.fixes.changes import Change
from compilediag.fixes.codemods.edit import EditImpossible
from compilediag.fixes.points import Certificate
from compilediag.runs.trials.judging import judged, refusal
from compilediag.runs.trials.one import Trial
from compilediag.runs.trials.running import make_trial, trial_of
from compilediag.runs.trials.state import (
    Campaign,
    Evidence,
    changes_by_finding,
    chosen_changes,
    keep,
)


def confirm(campaign: Campaign, evidence: Evidence) -> None:
    """The chosen changes together, and again; each alone again where they do not go together."""
    chosen = chosen_changes(campaign)
    if len(chosen) > 1:
        if _confirm_together(campaign, evidence, chosen):
            campaign.together = chosen
            return
        campaign.notes.append("the changes do not go together: each is proved alone")
    for group in dict.fromkeys(map(frozenset, changes_by_finding(campaign).values())):
        changes = tuple(change for change in chosen if change in group)
        name = f"again: {'; '.join(change.line for change in changes)}"
        again = range(max(1, campaign.rounds - 1))
        _prove(campaign, evidence, [make_trial(campaign, name, changes) for _ in again], changes)
    if len(chosen) == 1 and campaign.proved:
        campaign.together = chosen


def _confirm_together(campaign: Campaign, evidence: Evidence, chosen: tuple[Change, ...]) -> bool:
    name = "all of them together"
    try:
        runs = [trial_of(campaign, name, chosen, evidence.trials)]
    except EditImpossible:  # two edits of one place
        return False
    if (why := refusal(campaign, evidence, runs, chosen)) is not None:
        campaign.notes.append(f"with all changes together {why}")
        return False
    only_here = any({*group} == {*chosen} for group in changes_by_finding(campaign).values())
    again = range(max(campaign.rounds - 1, int(only_here)))
    runs += [make_trial(campaign, f"{name}, again", chosen) for _ in again]
    return _prove(campaign, evidence, runs, chosen)


def _prove(
    campaign: Campaign, evidence: Evidence, runs: Sequence[Trial], changes: Sequence[Change]
) -> bool:
    """Keeps the certificates of all runs with each finding's changes; False where one does not
    hold."""
    every = len(changes) > 1 and {*changes} == {*chosen_changes(campaign)}
    found: dict[str, tuple[Certificate, list[Trial]]] = {}
    for finding, group in changes_by_finding(campaign).items():
        if {*group} == {*changes} or (every and {*group} <= {*changes}):
            first = evidence.trials[frozenset(group)]
            seen = [first, *(run for run in runs if run is not first)]
            found[finding] = judged(campaign, evidence, finding, seen, group, changes), seen
    holds = all(certificate.holds for certificate, _ in found.values())
    for finding, (certificate, seen) in found.items():
        if holds or not every:
            keep(campaign, finding, campaign.chosen[finding], certificate, seen)
            if certificate.holds and certificate.runs > 1:
                campaign.proved[finding] = campaign.chosen[finding]
    return holds
