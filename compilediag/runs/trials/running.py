"""The runs of a campaign, each within the budget and each set of changes once, and the certificates
of changes that they give."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from compilediag.fixes.certificate import judge
from compilediag.fixes.observed import Certificate, Observed, Without
from compilediag.fixes.same_answers import needs_float64
from compilediag.rules.changes import Change, declared_by, plan_of
from compilediag.rules.variables import joined
from compilediag.runs.trials.one import SEED, Trial, run_trial
from compilediag.runs.trials.sources import labels_of, source_changes
from compilediag.runs.trials.state import (
    Campaign,
    Evidence,
    Stop,
    Trials,
    changes_by_finding,
    seconds_of_a_run,
)
from compilediag.runs.work_progress import WorkProgress
from compilediag_harness.wire import SourceChange

TIMEOUT_FACTOR, TIMEOUT_EXTRA_S = 4.0, 60.0
"""A trial may take so many times as long as the program took as it is, and so much longer."""


def edited_files(campaign: Campaign, changes: Iterable[Change]) -> tuple[SourceChange, ...]:
    """The files of the program as the changes edit them.

    Raises:
        EditImpossible: a file is not what ran any more.
    """
    digests = campaign.receipt.header.provenance.source_sha256
    return source_changes((edit for change in changes for edit in change.edits), digests)


def trial_of(campaign: Campaign, name: str, changes: Sequence[Change], trials: Trials) -> Trial:
    """The run with these changes, which is made once."""
    key = frozenset(changes)
    if key not in trials:
        trials[key] = make_trial(campaign, name, changes)
    return trials[key]


def make_trial(
    campaign: Campaign,
    name: str,
    changes: Sequence[Change],
    *,
    stance: str | None = None,
    reference: bool = False,
) -> Trial:
    """One run.

    Raises:
        Stop: there is no budget for it, or it was interrupted.
    """
    spent = time.monotonic() - campaign.started
    one_run = seconds_of_a_run(campaign)
    if campaign.budget_s is not None and spent + one_run > campaign.budget_s:
        raise Stop(
            f"the budget of {campaign.budget_s:g} s has no room for another run, which takes about "
            f"{one_run:.0f} s: not every change was tried"
        )
    edits = edited_files(campaign, changes)
    campaign.runs += 1
    campaign.announce(f"run {campaign.runs}: {name}")
    variables = joined(pair for change in changes for pair in change.variables)
    limit = campaign.program.options.timeout_s
    if limit is None and one_run:
        limit = TIMEOUT_FACTOR * one_run + TIMEOUT_EXTRA_S
    plan = plan_of(changes, seed=SEED, stance=stance)
    plan = replace(plan, sources=edits, reference=reference)
    with WorkProgress(stage=f"run {campaign.runs}: {name}", silent=campaign.quiet):
        trial = run_trial(campaign.program, campaign.runs, name, plan, variables, limit)
    if trial.interrupted:
        campaign.interrupted = True
        raise Stop(f"interrupted in run {campaign.runs}: what was not tried by then is left out")
    return trial


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
