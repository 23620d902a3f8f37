"""A campaign: the runs that show which changes remove which findings, and what they showed.

The program as it is, once more without compiling, each change until one holds for its finding, what
was refused alone on top of those, the chosen ones together, and the same once more. What is known
stays known when it is stopped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from compilediag.errors import CompilediagError
from compilediag.fixes.answers import compare, unstable
from compilediag.fixes.candidates.of_finding import candidates_of
from compilediag.fixes.changes import Change, located
from compilediag.fixes.codemods.edit import by_file
from compilediag.fixes.observed import Observed, Without
from compilediag.fixes.subject import subject_of
from compilediag.receipt.schema.compiles import FindingRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.trials.alone import try_each
from compilediag.runs.trials.confirming import confirm
from compilediag.runs.trials.on_top import try_on_top
from compilediag.runs.trials.one import Trial
from compilediag.runs.trials.running import make_trial
from compilediag.runs.trials.sources import Listed, listed
from compilediag.runs.trials.state import Campaign, Evidence, Result, Stop, Tried


def candidates_by_finding(receipt: Receipt, wanted: Sequence[FindingRecord]) -> dict[str, Listed]:
    """What would be tried for each finding, by its id, and what cannot be."""
    digests = receipt.header.provenance.source_sha256
    return {each.id: listed(candidates_of(each, receipt), digests) for each in wanted}


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
