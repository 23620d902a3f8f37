"""The runs of a campaign: each within the budget, and each set of changes once."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from compilediag.fixes.changes import Change, plan_of
from compilediag.fixes.environment import joined
from compilediag.runs.trials.one import Trial, run_trial
from compilediag.runs.trials.sources import source_changes
from compilediag.runs.trials.state import SEED, Campaign, Stop, Trials, seconds_of_a_run
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
