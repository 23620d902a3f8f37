"""Changes that hold only with others: two causes of one frame hide each other."""

from __future__ import annotations

import time
from itertools import product

from compilediag.fixes.changes import Change
from compilediag.fixes.codemods.edit import EditImpossible
from compilediag.fixes.points import Certificate
from compilediag.runs.trials.alone import try_each
from compilediag.runs.trials.judging import judged, refusal
from compilediag.runs.trials.running import trial_of
from compilediag.runs.trials.state import (
    Campaign,
    Evidence,
    chosen_changes,
    keep,
    seconds_of_a_run,
    without_change,
    worth_another_run,
)

_NO_TIME = "the budget left no time to try more changes together"

MAX_ON_TOP = 6
"""So many runs try changes that were refused alone on top of those that hold."""


def try_on_top(campaign: Campaign, evidence: Evidence) -> None:
    """What no change alone removes: all that hold so far, those with each that was refused, and
    with one of each finding. Two causes of one frame hide each other, and a limit is reached until
    the last is gone."""
    for finding in without_change(campaign, evidence):
        try_each(campaign, finding, (), evidence)  # with what ran for findings after it
    first_open = without_change(campaign, evidence)
    if not first_open:
        return
    base = chosen_changes(campaign)
    if len(base) > 1:
        _judge_open(campaign, base, evidence)
    before = campaign.runs
    for finding in first_open:
        for change in worth_another_run(campaign, finding):
            base = chosen_changes(campaign)
            if not base or finding in campaign.chosen or _is_enough(campaign, before):
                break
            _judge_open(campaign, (*base, change), evidence)
    left = [
        found
        for each in without_change(campaign, evidence)
        if (found := worth_another_run(campaign, each))
    ]
    for one_each in product(*left):
        if len({*one_each}) < 2 or _is_enough(campaign, before):
            break
        changes = (*chosen_changes(campaign), *dict.fromkeys(one_each))
        if _judge_open(campaign, changes, evidence):
            break


def _is_enough(campaign: Campaign, before: int) -> bool:
    """Whether the last runs have to be made now, of which proofs are made."""
    reserved = (campaign.rounds + 2) * seconds_of_a_run(campaign)
    spent = time.monotonic() - campaign.started
    over = campaign.budget_s is not None and spent + reserved > campaign.budget_s
    if over and _NO_TIME not in campaign.notes:
        campaign.notes.append(_NO_TIME)
        campaign.stopped = True
    return over or campaign.runs - before >= MAX_ON_TOP


def _judge_open(campaign: Campaign, changes: tuple[Change, ...], evidence: Evidence) -> bool:
    """Runs the changes together, and keeps them for the findings that only they remove; all others
    must hold with them as well, and none may be there for nothing. False where nothing is kept."""
    added = [change for change in changes if change not in chosen_changes(campaign)]
    name = f"together: {'; '.join(change.line for change in changes)}"
    try:
        trial = trial_of(campaign, name, changes, evidence.trials)
    except EditImpossible:  # two edits of one place
        return False
    if refusal(campaign, evidence, [trial], changes) is not None:
        return False
    held: dict[str, Certificate] = {}
    for finding in without_change(campaign, evidence):
        certificate = judged(campaign, evidence, finding, [trial], changes)
        if certificate.holds:
            held[finding] = certificate
    own = {
        each: [item for item in added if item in worth_another_run(campaign, each)] for each in held
    }
    needed = {change for of_finding in own.values() for change in of_finding}
    if len(added) > 1 and needed != {*added}:
        return False
    for finding, certificate in held.items():
        change = (*own[finding], *added, *changes)[0]
        campaign.chosen[finding] = change
        campaign.beside[finding] = tuple(each for each in changes if each != change)
        keep(campaign, finding, change, certificate, [trial])
    return bool(held)
