"""A campaign: the runs that show which changes remove which findings, and what they showed.

The program as it is, once more without compiling, each change until one holds for its finding, the
chosen ones together, and the same once more. What is known stays known when it is stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from compilediag.errors import CompilediagError
from compilediag.fixes.answers import compare
from compilediag.fixes.candidates.limits import sufficient
from compilediag.fixes.candidates.of_finding import candidates_of
from compilediag.fixes.certificate import Certificate, Observed, Without, judge
from compilediag.fixes.changes import Change, located, plan_of
from compilediag.fixes.environment import joined
from compilediag.fixes.subject import Subject, count_in, subject_of
from compilediag.receipt.schema.compiles import FindingRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.trials.one import Program, Trial, run_trial
from compilediag.runs.trials.sources import labels_of, possible, source_changes
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
    started: float = field(default_factory=time.monotonic)
    runs: int = 0
    notes: list[str] = field(default_factory=list[str])
    """What was not done, and why."""
    stopped: bool = False
    tried: dict[str, dict[Change, tuple[Certificate, list[Observed], str]]] = field(
        default_factory=dict[str, "dict[Change, tuple[Certificate, list[Observed], str]]"]
    )
    """By the id of the finding."""
    proved: dict[str, Change] = field(default_factory=dict[str, Change])
    chosen: dict[str, Change] = field(default_factory=dict[str, Change])
    together: tuple[Change, ...] = ()
    """The changes that were proved in one run."""
    baseline_s: float = 0.0


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
        campaign.stopped = True
    except CompilediagError as error:
        campaign.notes.append(f"no more runs: {error}")
        campaign.stopped = True
    return _results(campaign)


def _run(campaign: Campaign, given: Trial | None) -> None:
    candidates = candidates_by_finding(campaign.receipt, campaign.wanted)
    if not any(candidates.values()):
        return
    baseline = given or _trial(campaign, "the program as it is", ())
    if baseline.observed is None or baseline.problem:
        raise _Stop(f"the program itself does not run: {baseline.problem} ({baseline.output})")
    campaign.baseline_s = baseline.wall_s
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


def _edits_first(changes: Sequence[Change]) -> tuple[Change, ...]:
    return tuple(sorted(changes, key=lambda change: not change.edits))


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
    known = [each for each in trials if each not in candidates and not each.searches]
    subject = subjects[finding.id]
    for tried in (*known, *candidates):
        change = tried
        certificate = _tried_alone(campaign, change, subject, without, trials)
        found = trials[change].observed
        if certificate.holds and change.searches and found is not None:
            change = sufficient(change, found.receipt)
            certificate = _tried_alone(campaign, change, subject, without, trials)
        if tried in candidates or certificate.holds:
            _keep(campaign, finding.id, change, certificate, [trials[change]])
        if certificate.holds:
            campaign.chosen[finding.id] = change
            return


def _tried_alone(
    campaign: Campaign,
    change: Change,
    subject: Subject,
    without: Without,
    trials: dict[Change, Trial],
) -> Certificate:
    if change not in trials:
        trials[change] = _trial(campaign, change.line, (change,))
    return _judged(subject, without, [trials[change]], (change,))


def _judged(
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
    every = (*changes, *others)
    leaves_out = any(change.leaves_out for change in every)
    unlimits = any(change.unlimits for change in every)
    disables = frozenset(change.disables for change in every if change.disables)
    return judge(
        subject,
        without,
        seen,
        labels=labels,
        left=left,
        leaves_out=leaves_out,
        unlimits=unlimits,
        disables=disables,
    )


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
    if len(chosen) > 1:
        runs = [_trial(campaign, "all of them together", chosen)]
        if _hold(campaign, without, subjects, runs, chosen):
            runs.append(_trial(campaign, "all of them together, again", chosen))
            if _prove(campaign, without, subjects, runs, chosen, trials):
                campaign.together = chosen
                return
        campaign.notes.append("the changes do not go together: each is proved alone")
    for change in chosen:
        runs = [_trial(campaign, f"again: {change.line}", (change,))]
        _prove(campaign, without, subjects, runs, (change,), trials)
    if len(chosen) == 1 and campaign.proved:
        campaign.together = chosen


def _hold(
    campaign: Campaign,
    without: Without,
    subjects: dict[str, Subject],
    runs: Sequence[Trial],
    changes: Sequence[Change],
) -> bool:
    return all(
        _judged(subjects[finding], without, runs, (change,), changes).holds
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
            found[finding] = _judged(subjects[finding], without, every, (change,), changes)
    holds = all(certificate.holds for certificate in found.values())
    for finding, certificate in found.items():
        change = campaign.chosen[finding]
        if holds or len(changes) == 1:
            _keep(campaign, finding, change, certificate, [trials[change], *runs])
            if certificate.holds:
                campaign.proved[finding] = change
    return holds


def _trial(
    campaign: Campaign, name: str, changes: Sequence[Change], *, stance: str | None = None
) -> Trial:
    """One run.

    Raises:
        _Stop: there is no budget for it, or it was interrupted.
    """
    spent = time.monotonic() - campaign.started
    if campaign.budget_s is not None and spent + campaign.baseline_s > campaign.budget_s:
        raise _Stop(f"the budget of {campaign.budget_s:g} s is spent: some changes were not tried")
    campaign.runs += 1
    campaign.announce(f"run {campaign.runs}: {name}")
    variables = joined(pair for change in changes for pair in change.variables)
    limit = campaign.program.options.timeout_s
    if limit is None and campaign.baseline_s:
        limit = TIMEOUT_FACTOR * campaign.baseline_s + TIMEOUT_EXTRA_S
    edits = edited_files(campaign, changes)
    plan = replace(plan_of(changes, seed=SEED, stance=stance), sources=edits)
    trial = run_trial(campaign.program, campaign.runs, name, plan, variables, limit)
    if trial.interrupted:
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
