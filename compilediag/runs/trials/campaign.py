"""A campaign: the runs that show which changes remove which findings, and what they showed.

The program as it is, once more without compiling, each change until one holds for its finding, what
was refused alone on top of those, the chosen ones together, and the same once more. What is known
stays known when it is stopped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from itertools import product

from compilediag.errors import CompilediagError
from compilediag.fixes.answers import compare, unstable
from compilediag.fixes.observed import Certificate, Observed, Without
from compilediag.fixes.subject import subject_of
from compilediag.receipt.schema.compiles import FindingRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.changes import Change, EditImpossible, by_file, located
from compilediag.rules.limits import sufficient
from compilediag.rules.offers import changes_for
from compilediag.runs.trials.one import Trial
from compilediag.runs.trials.running import judged, make_trial, refusal, trial_of
from compilediag.runs.trials.sources import Listed, listed
from compilediag.runs.trials.state import (
    Campaign,
    Evidence,
    Result,
    Stop,
    Tried,
    came_again,
    changes_by_finding,
    chosen_changes,
    keep,
    seconds_of_a_run,
    without_change,
    worth_another_run,
)

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
    return _results(campaign)


def _run(campaign: Campaign, given: Trial | None) -> None:
    found = candidates_by_finding(campaign.receipt, campaign.wanted)
    candidates = {finding: each.possible for finding, each in found.items()}
    if not any(candidates.values()):
        return
    baseline = campaign.baseline = given or make_trial(campaign, "the program as it is", ())
    if baseline.observed is None or baseline.problem:
        raise Stop(f"the program itself does not run: {why_not(baseline)}")
    _require_same_torch(campaign.receipt, baseline.observed.receipt)
    without = _without(campaign, baseline.observed)
    subjects = {each.id: subject_of(each, campaign.receipt) for each in campaign.wanted}
    evidence = Evidence(without, subjects, {})
    functions = [item.function for item in baseline.observed.timeline.invocations]
    candidates = {
        finding: tuple(located(change, functions) for change in changes)
        for finding, changes in candidates.items()
    }
    if campaign.edits_first:
        candidates = {key: _edits_first(changes) for key, changes in candidates.items()}
    for finding in campaign.wanted:
        try_each(campaign, finding.id, candidates[finding.id], evidence)
    try_on_top(campaign, evidence)
    confirm(campaign, evidence)


def _require_same_torch(findings_of: Receipt, baseline: Receipt) -> None:
    before, now = findings_of.environment.torch, baseline.environment.torch
    if before != now:
        raise Stop(
            f"the findings are of a run with torch {before}, and the program has {now} now: name "
            "the program, `compilediag fix train.py`"
        )


def why_not(trial: Trial) -> str:
    """Why the program as it is does not run, and where its output is."""
    reads = " (its input is empty here)" if "EOFError" in (trial.problem or "") else ""
    return f"{trial.problem}{reads}; its output: {os.path.relpath(trial.output)}"


def _edits_first(changes: Sequence[Change]) -> tuple[Change, ...]:
    """But for other sizes, which come when nothing makes those of the program do."""
    return tuple(sorted(changes, key=lambda change: (change.pads is not None, not change.edits)))


def _without(campaign: Campaign, baseline: Observed) -> Without:
    reference = make_trial(campaign, "eager, for its results", (), stance="force_eager")
    eager = None if reference.problem else reference.observed
    if eager is not None:
        found = compare(baseline.timeline, eager.timeline)
        if found.compared and found.difference is None:
            return Without(baseline, eager)
    again = make_trial(campaign, "the program as it is, again", ())
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


def _results(campaign: Campaign) -> tuple[Result, ...]:
    found = candidates_by_finding(campaign.receipt, campaign.wanted)
    return tuple(
        Result(finding, tuple(_tried(campaign, finding.id)), found[finding.id])
        for finding in campaign.wanted
    )


def _tried(campaign: Campaign, finding: str) -> Iterator[Tried]:
    for change, (certificate, _, output) in campaign.tried.get(finding, {}).items():
        proved = campaign.proved.get(finding) == change and certificate.holds
        chosen = campaign.chosen.get(finding) == change
        yield Tried(
            change, certificate, proved, output, _beside(campaign, finding) if chosen else ()
        )


def _beside(campaign: Campaign, finding: str) -> tuple[str, ...]:
    """The findings whose changes it needs too."""
    needed = campaign.beside.get(finding, ())
    chosen = campaign.chosen.items()
    return tuple(other for other, change in chosen if other != finding and change in needed)


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
    """The last runs have to be made now, of which proofs are made."""
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
