"""A campaign: the runs that show which changes remove which findings, and what they showed.

The program as it is, once more without compiling, each change until one holds for its finding, the
chosen ones together, and the same once more. What is known stays known when it is stopped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from compilediag.errors import CompilediagError
from compilediag.fixes.answers import compare
from compilediag.fixes.candidates.of_finding import candidates_of
from compilediag.fixes.certificate import Certificate, Observed, Without, judge, needs_float64
from compilediag.fixes.changes import Change, declared_by, located, plan_of
from compilediag.fixes.codemods.edit import EditImpossible, by_file
from compilediag.fixes.environment import joined
from compilediag.fixes.subject import Subject, count_in, subject_of
from compilediag.receipt.schema.compiles import FindingRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.trials.one import Program, Trial, run_trial
from compilediag.runs.trials.sources import labels_of, possible, source_changes
from compilediag.runs.work_progress import WorkProgress
from compilediag_harness.wire import SourceChange

SEED = 20_261_123
"""Of every generator, in every run of a campaign."""

TIMEOUT_FACTOR, TIMEOUT_EXTRA_S = 4.0, 60.0
"""A trial may take so many times as long as the program took as it is, and so much longer."""

Announce = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Tried:
    """A change and what it did for one finding."""

    change: Change
    certificate: Certificate
    proved: bool
    output: str
    """File with what the program printed, of the last run with the change."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a campaign found out about one finding."""

    finding: FindingRecord
    tried: tuple[Tried, ...]
    candidates: int
    """How many changes there were to try."""

    @property
    def proof(self) -> Tried | None:
        """The change that is proved; None where none is."""
        return next((item for item in self.tried if item.proved), None)


@dataclass(slots=True)
class Campaign:
    """A campaign in progress."""

    program: Program
    receipt: Receipt
    """Whose findings they are."""
    wanted: tuple[FindingRecord, ...]
    announce: Announce
    budget_s: float | None = None
    edits_first: bool = False
    """Edits of the program are tried before what needs none."""
    quiet: bool = False
    """No progress is shown."""
    started: float = field(default_factory=time.monotonic)
    runs: int = 0
    notes: list[str] = field(default_factory=list[str])
    """What was not done, and why."""
    stopped: bool = False
    interrupted: bool = False
    tried: dict[str, dict[Change, tuple[Certificate, list[Observed], str]]] = field(
        default_factory=dict[str, "dict[Change, tuple[Certificate, list[Observed], str]]"]
    )
    """By the id of the finding."""
    proved: dict[str, Change] = field(default_factory=dict[str, Change])
    chosen: dict[str, Change] = field(default_factory=dict[str, Change])
    together: tuple[Change, ...] = ()
    """The changes that were proved in one run."""
    baseline: Trial | None = None
    """The program as it is."""
    precise: Observed | None = None
    """Eager, with sampled calls in float64 too, once something depends on it."""


class _Stop(Exception):
    """No more runs."""


def candidates_by_finding(
    receipt: Receipt, wanted: Sequence[FindingRecord]
) -> dict[str, tuple[Change, ...]]:
    """What would be tried for each finding, by its id."""
    digests = receipt.header.provenance.source_sha256
    return {each.id: possible(candidates_of(each, receipt), digests) for each in wanted}


def edited_files(campaign: Campaign, changes: Iterable[Change]) -> tuple[SourceChange, ...]:
    """The files of the program as the changes edit them.

    Raises:
        EditImpossible: a file is not what ran any more.
    """
    digests = campaign.receipt.header.provenance.source_sha256
    return source_changes((edit for change in changes for edit in change.edits), digests)


def editable_files(campaign: Campaign) -> list[str]:
    """The files that candidates edit."""
    listed = candidates_by_finding(campaign.receipt, campaign.wanted).values()
    edits = [edit for changes in listed for change in changes for edit in change.edits]
    return list(by_file(edits))


def run_campaign(campaign: Campaign, baseline: Trial | None = None) -> tuple[Result, ...]:
    """Makes the runs; an exception of ours or Ctrl-C ends them and loses nothing.

    Args:
        campaign: the program and its findings; what becomes of it is written into it.
        baseline: the program as it is, where that run was made already.
    """
    try:
        _run(campaign, baseline)
    except _Stop as why:
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
    candidates = candidates_by_finding(campaign.receipt, campaign.wanted)
    if not any(candidates.values()):
        return
    baseline = campaign.baseline = given or _trial(campaign, "the program as it is", ())
    if baseline.observed is None or baseline.problem:
        raise _Stop(f"the program itself does not run: {why_not(baseline)}")
    _require_same_torch(campaign.receipt, baseline.observed.receipt)
    without = _without(campaign, baseline.observed)
    subjects = {each.id: subject_of(each, campaign.receipt) for each in campaign.wanted}
    functions = [item.function for item in baseline.observed.timeline.invocations]
    candidates = {
        finding: tuple(located(change, functions) for change in changes)
        for finding, changes in candidates.items()
    }
    if campaign.edits_first:
        candidates = {key: _edits_first(changes) for key, changes in candidates.items()}
    trials: dict[Change, Trial] = {}
    for finding in campaign.wanted:
        _try_each(campaign, finding, candidates[finding.id], without, subjects, trials)
    _confirm(campaign, without, subjects, trials)


def _require_same_torch(findings_of: Receipt, baseline: Receipt) -> None:
    before, now = findings_of.environment.torch, baseline.environment.torch
    if before != now:
        raise _Stop(
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
    reference = _trial(campaign, "eager, for its results", (), stance="force_eager")
    eager = None if reference.problem else reference.observed
    if eager is not None:
        found = compare(baseline.timeline, eager.timeline)
        if found.compared and found.difference is None:
            return Without(baseline, eager)
    again = _trial(campaign, "the program as it is, again", ())
    if again.observed is None or again.problem:
        raise _Stop(f"the program did not run a second time: {again.problem}")
    repeatable = compare(baseline.timeline, again.observed.timeline)
    if repeatable.difference is not None:
        raise _Stop(
            "nothing can be proved: the program's results differ between two unchanged runs "
            f"({repeatable.difference})"
        )
    return Without(baseline, eager, repeatable)


def _try_each(
    campaign: Campaign,
    finding: FindingRecord,
    candidates: Sequence[Change],
    without: Without,
    subjects: dict[str, Subject],
    trials: dict[Change, Trial],
) -> None:
    """Until one holds; first those that ran for another finding."""
    if count_in(subjects[finding.id], without.baseline.receipt) == 0:
        campaign.notes.append(f"finding {finding.id[1:]} did not come again")
        return
    known = [change for change in trials if change not in candidates]
    for change in (*known, *candidates):
        if change not in trials:
            trials[change] = _trial(campaign, change.line, (change,))
        certificate = _judged(campaign, subjects[finding.id], without, [trials[change]], (change,))
        if change in candidates or certificate.holds:
            _keep(campaign, finding.id, change, certificate, [trials[change]])
        if certificate.holds:
            campaign.chosen[finding.id] = change
            return


def _judged(
    campaign: Campaign,
    subject: Subject,
    without: Without,
    trials: Sequence[Trial],
    changes: Sequence[Change],
    others: Sequence[Change] = (),
) -> Certificate:
    """Of changes for a finding, in runs that may have others too."""
    seen = [_observed(trial, without.baseline) for trial in trials]
    labels = [label for change in changes for label in change.labels]
    labels += labels_of(edit for change in changes for edit in change.edits)
    left = max(change.left for change in changes)
    leaves_out = any(change.leaves_out for change in (*changes, *others))
    declared = declared_by((*changes, *others))
    pads = [change.pads for change in changes if change.pads is not None]

    def certificate() -> Certificate:
        known = replace(without, precise=campaign.precise)
        return judge(
            subject,
            known,
            seen,
            labels=labels,
            left=left,
            leaves_out=leaves_out,
            declared=declared,
            pads=pads,
        )

    found = certificate()
    if campaign.precise is None and needs_float64(found, without, seen, declared):
        campaign.precise = _precise(campaign, without)
        return certificate()
    return found


def _precise(campaign: Campaign, without: Without) -> Observed | None:
    """The eager run with references; where it does not run, that without any."""
    name = "eager, with calls in float64"
    trial = _trial(campaign, name, (), stance="force_eager", reference=True)
    return without.reference if trial.problem else trial.observed


def _observed(trial: Trial, baseline: Observed) -> Observed:
    if trial.observed is not None:
        return trial.observed
    return Observed(baseline.receipt, baseline.timeline, trial.problem or "it left no receipt")


def _keep(
    campaign: Campaign,
    finding: str,
    change: Change,
    certificate: Certificate,
    trials: Sequence[Trial],
) -> None:
    seen = [trial.observed for trial in trials if trial.observed is not None]
    output = trials[-1].output
    campaign.tried.setdefault(finding, {})[change] = (certificate, seen, output)


def _confirm(
    campaign: Campaign,
    without: Without,
    subjects: dict[str, Subject],
    trials: dict[Change, Trial],
) -> None:
    """The chosen changes together, and once more; each alone once more where they do not go
    together."""
    chosen = tuple(dict.fromkeys(campaign.chosen.values()))
    if not chosen:
        return
    if len(chosen) > 1 and _go_together(campaign, chosen):
        runs = [_trial(campaign, "all of them together", chosen)]
        if _hold(campaign, without, subjects, runs, chosen):
            runs.append(_trial(campaign, "all of them together, again", chosen))
            if _prove(campaign, without, subjects, runs, chosen, trials):
                campaign.together = chosen
                return
    if len(chosen) > 1:
        campaign.notes.append("the changes do not go together: each is proved alone")
    for change in chosen:
        runs = [_trial(campaign, f"again: {change.line}", (change,))]
        _prove(campaign, without, subjects, runs, (change,), trials)
    if len(chosen) == 1 and campaign.proved:
        campaign.together = chosen


def _go_together(campaign: Campaign, changes: Sequence[Change]) -> bool:
    """Whether their edits can be made in one text."""
    try:
        edited_files(campaign, changes)
    except EditImpossible:
        return False
    return True


def _hold(
    campaign: Campaign,
    without: Without,
    subjects: dict[str, Subject],
    runs: Sequence[Trial],
    changes: Sequence[Change],
) -> bool:
    return all(
        _judged(campaign, subjects[finding], without, runs, (change,), changes).holds
        for finding, change in campaign.chosen.items()
        if change in changes
    )


def _prove(
    campaign: Campaign,
    without: Without,
    subjects: dict[str, Subject],
    runs: Sequence[Trial],
    changes: Sequence[Change],
    trials: dict[Change, Trial],
) -> bool:
    """Keeps the certificates of all runs with each change; False where one does not hold."""
    found: dict[str, Certificate] = {}
    for finding, change in campaign.chosen.items():
        if change in changes:
            every = [trials[change], *runs]
            found[finding] = _judged(
                campaign, subjects[finding], without, every, (change,), changes
            )
    holds = all(certificate.holds for certificate in found.values())
    for finding, certificate in found.items():
        change = campaign.chosen[finding]
        if holds or len(changes) == 1:
            _keep(campaign, finding, change, certificate, [trials[change], *runs])
            if certificate.holds:
                campaign.proved[finding] = change
    return holds


def _trial(
    campaign: Campaign,
    name: str,
    changes: Sequence[Change],
    *,
    stance: str | None = None,
    reference: bool = False,
) -> Trial:
    """One run.

    Raises:
        _Stop: there is no budget for it, or it was interrupted.
    """
    spent = time.monotonic() - campaign.started
    one_run = campaign.baseline.wall_s if campaign.baseline is not None else 0.0
    if campaign.budget_s is not None and spent + one_run > campaign.budget_s:
        raise _Stop(
            f"the budget of {campaign.budget_s:g} s has no room for another run, which takes about "
            f"{one_run:.0f} s: not every change was tried"
        )
    campaign.runs += 1
    campaign.announce(f"run {campaign.runs}: {name}")
    variables = joined(pair for change in changes for pair in change.variables)
    limit = campaign.program.options.timeout_s
    if limit is None and one_run:
        limit = TIMEOUT_FACTOR * one_run + TIMEOUT_EXTRA_S
    edits = edited_files(campaign, changes)
    plan = plan_of(changes, seed=SEED, stance=stance)
    plan = replace(plan, sources=edits, reference=reference)
    with WorkProgress(stage=f"run {campaign.runs}: {name}", silent=campaign.quiet):
        trial = run_trial(campaign.program, campaign.runs, name, plan, variables, limit)
    if trial.interrupted:
        campaign.interrupted = True
        raise _Stop(f"interrupted in run {campaign.runs}: what was not tried by then is left out")
    return trial


def _results(campaign: Campaign) -> tuple[Result, ...]:
    candidates = candidates_by_finding(campaign.receipt, campaign.wanted)
    return tuple(
        Result(finding, tuple(_tried(campaign, finding.id)), len(candidates[finding.id]))
        for finding in campaign.wanted
    )


def _tried(campaign: Campaign, finding: str) -> Iterator[Tried]:
    for change, (certificate, _, output) in campaign.tried.get(finding, {}).items():
        proved = campaign.proved.get(finding) == change and certificate.holds
        yield Tried(change, certificate, proved, output)
