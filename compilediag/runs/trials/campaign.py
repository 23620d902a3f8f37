"""A campaign: the runs that show which changes remove which findings, and what they showed.

The program as it is, once more without compiling, each change until one holds for its finding, what
was refused alone on top of those, the chosen ones together, and the same once more. What is known
stays known when it is stopped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from itertools import product

from compilediag.errors import CompilediagError
from compilediag.fixes.answers import compare, unstable
from compilediag.fixes.observed import (
    Certificate,
    Listed,
    Observed,
    Result,
    Tried,
    Without,
    subject_of,
)
from compilediag.receipt.schema.compiles import FindingRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.changes import Change, EditImpossible, by_file, located
from compilediag.rules.limits import sufficient
from compilediag.rules.offers import changes_for
from compilediag.runs.trials.one import Trial
from compilediag.runs.trials.sources import listed
from compilediag.runs.trials.state import Campaign, Stop

_NO_TIME = "the budget left no time to try more changes together"

MAX_ON_TOP = 6
"""So many runs try changes that were refused alone on top of those that hold."""


def candidates_by_finding(receipt: Receipt, wanted: Sequence[FindingRecord]) -> dict[str, Listed]:
    """What would be tried for each finding, by its id, and what cannot be."""
    digests = receipt.header.provenance.source_sha256
    return {each.id: listed(changes_for(each, receipt), digests) for each in wanted}


def editable_files(campaign: Campaign) -> list[str]:
    """The files that candidates edit."""
    found = candidates_by_finding(campaign.receipt, campaign.wanted).values()
    edits = [edit for each in found for change in each.possible for edit in change.edits]
    return list(by_file(edits))


def run_campaign(campaign: Campaign, baseline: Trial | None = None) -> tuple[Result, ...]:
    """Makes the runs; an exception of ours or Ctrl-C ends them and loses nothing.

    Args:
        campaign: the program and its findings; what becomes of it is written into it.
        baseline: the program as it is, where that run was made already.
    """
    try:
        _run(campaign, baseline)
    except Stop as why:
        campaign.notes.append(str(why))
        campaign.stopped = True
    except KeyboardInterrupt:
        campaign.notes.append("interrupted: what was not tried by then is left out")
        campaign.stopped = campaign.interrupted = True
    except CompilediagError as error:
        campaign.notes.append(f"no more runs: {error}")
        campaign.stopped = True
    found = candidates_by_finding(campaign.receipt, campaign.wanted)
    return tuple(_result(campaign, each, found[each.id]) for each in campaign.wanted)


def _run(campaign: Campaign, given: Trial | None) -> None:
    candidates = {
        finding: each.possible
        for finding, each in candidates_by_finding(campaign.receipt, campaign.wanted).items()
    }
    if not any(candidates.values()):
        return
    baseline = campaign.baseline = given or campaign.make_trial("the program as it is")
    if baseline.observed is None or baseline.problem:
        raise Stop(f"the program itself does not run: {why_not(baseline)}")
    before, now = (x.environment.torch for x in (campaign.receipt, baseline.observed.receipt))
    if before != now:
        raise Stop(
            f"the findings are of a run with torch {before}, and the program has {now} now: name "
            "the program, `compilediag fix train.py`"
        )
    campaign.without = _without(campaign, baseline.observed)
    campaign.subjects = {each.id: subject_of(each, campaign.receipt) for each in campaign.wanted}
    functions = [item.function for item in baseline.observed.timeline.invocations]
    for finding in campaign.wanted:
        changes = [located(change, functions) for change in candidates[finding.id]]
        if campaign.edits_first:
            # But for other sizes, which come when nothing makes those of the program do.
            changes.sort(key=lambda change: (bool(change.pads), not change.edits))
        try_each(campaign, finding.id, changes)
    try_on_top(campaign)
    confirm(campaign)


def why_not(trial: Trial) -> str:
    """Why the program as it is does not run, and where its output is."""
    reads = " (its input is empty here)" if "EOFError" in (trial.problem or "") else ""
    return f"{trial.problem}{reads}; its output: {os.path.relpath(trial.output)}"


def _without(campaign: Campaign, baseline: Observed) -> Without:
    reference = campaign.make_trial("eager, for its results", stance="force_eager")
    eager = None if reference.problem else reference.observed
    if eager is not None:
        found = compare(baseline.timeline, eager.timeline)
        if found.compared and found.difference is None:
            return Without(baseline, eager)
    again = campaign.make_trial("the program as it is, again")
    if again.observed is None or again.problem:
        raise Stop(f"the program did not run a second time: {again.problem}")
    differ = unstable(baseline.timeline, again.observed.timeline)
    repeatable = compare(baseline.timeline, again.observed.timeline, ignored=differ or frozenset())
    if differ is None or repeatable.difference is not None:
        raise Stop(
            "nothing can be proved: the program's results differ between two unchanged runs "
            f"({repeatable.difference})"
        )
    return Without(baseline, eager, repeatable, differ)


def _result(campaign: Campaign, finding: FindingRecord, found: Listed) -> Result:
    key, tried = finding.id, list[Tried]()
    # The findings whose changes its own needs too.
    needed = campaign.beside.get(key, ())
    beside = tuple(x for x, change in campaign.chosen.items() if x != key and change in needed)
    for change, (certificate, output) in campaign.tried.get(key, {}).items():
        proved = campaign.proved.get(key) == change and certificate.holds
        with_others = beside if campaign.chosen.get(key) == change else ()
        tried.append(Tried(change, certificate, proved, output, with_others))
    return Result(finding, tuple(tried), found)


def confirm(campaign: Campaign) -> None:
    """The chosen changes together, and again; each alone again where they do not go together."""
    chosen = campaign.chosen_changes()
    if len(chosen) > 1:
        if _confirm_together(campaign, chosen):
            campaign.together = chosen
            return
        campaign.notes.append("the changes do not go together: each is proved alone")
    for group in dict.fromkeys(map(frozenset, campaign.changes_by_finding().values())):
        changes = tuple(change for change in chosen if change in group)
        name = f"again: {'; '.join(change.line for change in changes)}"
        again = range(max(1, campaign.rounds - 1))
        _prove(campaign, [campaign.make_trial(name, changes) for _ in again], changes)
    if len(chosen) == 1 and campaign.proved:
        campaign.together = chosen


def _confirm_together(campaign: Campaign, chosen: tuple[Change, ...]) -> bool:
    name = "all of them together"
    try:
        runs = [campaign.trial_of(name, chosen)]
    except EditImpossible:  # two edits of one place
        return False
    if (why := campaign.refusal(runs, chosen)) is not None:
        campaign.notes.append(f"with all changes together {why}")
        return False
    only_here = any({*group} == {*chosen} for group in campaign.changes_by_finding().values())
    again = range(max(campaign.rounds - 1, int(only_here)))
    runs += [campaign.make_trial(f"{name}, again", chosen) for _ in again]
    return _prove(campaign, runs, chosen)


def _prove(campaign: Campaign, runs: Sequence[Trial], changes: Sequence[Change]) -> bool:
    """Keeps the certificates of all runs with each finding's changes; False where one does not
    hold."""
    every = len(changes) > 1 and {*changes} == {*campaign.chosen_changes()}
    found: dict[str, tuple[Certificate, Trial]] = {}
    for finding, group in campaign.changes_by_finding().items():
        if {*group} == {*changes} or (every and {*group} <= {*changes}):
            first = campaign.trials[frozenset(group)]
            seen = [first, *(run for run in runs if run is not first)]
            found[finding] = campaign.judged(finding, seen, group, changes), seen[-1]
    holds = all(certificate.holds for certificate, _ in found.values())
    for finding, (certificate, last) in found.items():
        if holds or not every:
            campaign.keep(finding, campaign.chosen[finding], certificate, last)
            if certificate.holds and certificate.runs > 1:
                campaign.proved[finding] = campaign.chosen[finding]
    return holds


def try_on_top(campaign: Campaign) -> None:
    """What no change alone removes: all that hold so far, those with each that was refused, and
    with one of each finding. Two causes of one frame hide each other, and a limit is reached until
    the last is gone."""
    for finding in campaign.open_findings():
        try_each(campaign, finding, ())  # with what ran for findings after it
    first_open = campaign.open_findings()
    if not first_open:
        return
    base = campaign.chosen_changes()
    if len(base) > 1:
        _judge_open(campaign, base)
    before = campaign.runs
    for finding in first_open:
        for change in campaign.worth_another_run(finding):
            base = campaign.chosen_changes()
            if not base or finding in campaign.chosen or _is_enough(campaign, before):
                break
            _judge_open(campaign, (*base, change))
    left = [
        found for each in campaign.open_findings() if (found := campaign.worth_another_run(each))
    ]
    for one_each in product(*left):
        if len({*one_each}) < 2 or _is_enough(campaign, before):
            break
        changes = (*campaign.chosen_changes(), *dict.fromkeys(one_each))
        if _judge_open(campaign, changes):
            break


def _is_enough(campaign: Campaign, before: int) -> bool:
    """The last runs have to be made now, of which proofs are made."""
    reserved = (campaign.rounds + 2) * campaign.run_s
    spent = time.monotonic() - campaign.started
    over = campaign.budget_s is not None and spent + reserved > campaign.budget_s
    if over and _NO_TIME not in campaign.notes:
        campaign.notes.append(_NO_TIME)
        campaign.stopped = True
    return over or campaign.runs - before >= MAX_ON_TOP


def _judge_open(campaign: Campaign, changes: tuple[Change, ...]) -> bool:
    """Runs the changes together, and keeps them for the findings that only they remove; all others
    must hold with them as well, and none may be there for nothing. False where nothing is kept."""
    added = [change for change in changes if change not in campaign.chosen_changes()]
    name = f"together: {'; '.join(change.line for change in changes)}"
    try:
        trial = campaign.trial_of(name, changes)
    except EditImpossible:  # two edits of one place
        return False
    if campaign.refusal([trial], changes) is not None:
        return False
    held: dict[str, Certificate] = {}
    for finding in campaign.open_findings():
        certificate = campaign.judged(finding, [trial], changes)
        if certificate.holds:
            held[finding] = certificate
    own = {
        each: [item for item in added if item in campaign.worth_another_run(each)] for each in held
    }
    needed = {change for of_finding in own.values() for change in of_finding}
    if len(added) > 1 and needed != {*added}:
        return False
    for finding, certificate in held.items():
        change = (*own[finding], *added, *changes)[0]
        campaign.chosen[finding] = change
        campaign.beside[finding] = tuple(each for each in changes if each != change)
        campaign.keep(finding, change, certificate, trial)
    return bool(held)


def try_each(campaign: Campaign, finding: str, candidates: Sequence[Change]) -> None:
    """Until one holds; first those that ran for another finding."""
    if not campaign.came_again(finding):
        campaign.notes.append(f"finding {finding[1:]} did not come again")
        return
    known = [
        change
        for key in campaign.trials
        for change in key
        if change not in candidates and not change.searches
    ]
    for tried in (*known, *candidates):
        change = tried
        trial = campaign.trial_of(change.line, (change,))
        certificate = campaign.judged(finding, [trial], (change,))
        if certificate.holds and change.searches and trial.observed is not None:
            change = sufficient(change, trial.observed.receipt)
            trial = campaign.trial_of(change.line, (change,))
            certificate = campaign.judged(finding, [trial], (change,))
        if tried in candidates or certificate.holds:
            campaign.keep(finding, change, certificate, trial)
        if certificate.holds:
            campaign.chosen[finding] = change
            return
