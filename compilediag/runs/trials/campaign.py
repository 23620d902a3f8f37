"""A campaign: the runs that show which changes remove which findings, and what they showed.

The program as it is, once more without compiling, each change until one holds for its finding, what
was refused alone on top of those, the chosen ones together, and the same once more. What is known
stays known when it is stopped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from compilediag.errors import CompilediagError
from compilediag.fixes.answers import compare, unstable
from compilediag.fixes.candidates.limits import sufficient
from compilediag.fixes.candidates.of_finding import candidates_of
from compilediag.fixes.certificate import judge
from compilediag.fixes.changes import Change, declared_by, located, plan_of
from compilediag.fixes.codemods.edit import EditImpossible, by_file
from compilediag.fixes.environment import joined
from compilediag.fixes.observed import Observed, Without
from compilediag.fixes.points import Certificate
from compilediag.fixes.same_answers import needs_float64
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

MAX_ON_TOP = 6
"""So many runs try changes that were refused alone on top of those that hold."""

ROUNDS = 2
"""Runs with all that is proved, unless the user wants more."""

Announce = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Tried:
    """A change and what it did for one finding."""

    change: Change
    certificate: Certificate
    proved: bool
    output: str
    """File with what the program printed, of the last run with the change."""
    beside: tuple[str, ...] = ()
    """Ids of the findings whose changes were there too: alone it was not seen to hold."""

    @property
    def risk(self) -> str:
        """What else the change does, and what it needs."""
        if not self.beside:
            return self.change.risk
        numbers = " and ".join(each[1:] for each in self.beside)
        word = "finding" if len(self.beside) == 1 else "findings"
        return f"together with the change of {word} {numbers}; {self.change.risk}"


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
    rounds: int = ROUNDS
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
    beside: dict[str, tuple[Change, ...]] = field(default_factory=dict[str, "tuple[Change, ...]"])
    """What the change of a finding needs beside it, by the id of the finding."""
    together: tuple[Change, ...] = ()
    """The changes that were proved in one run."""
    baseline: Trial | None = None
    """The program as it is."""
    precise: Observed | None = None
    """Eager, with sampled calls in float64 too, once something depends on it."""


class _Stop(Exception):
    """No more runs."""


_Trials = dict[frozenset[Change], Trial]
"""The runs by what they had."""


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What changes are judged by, and the runs that were made."""

    without: Without
    subjects: Mapping[str, Subject]
    trials: _Trials


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
    evidence = _Evidence(without, subjects, {})
    functions = [item.function for item in baseline.observed.timeline.invocations]
    candidates = {
        finding: tuple(located(change, functions) for change in changes)
        for finding, changes in candidates.items()
    }
    if campaign.edits_first:
        candidates = {key: _edits_first(changes) for key, changes in candidates.items()}
    for finding in campaign.wanted:
        _try_each(campaign, finding.id, candidates[finding.id], evidence)
    _try_on_top(campaign, evidence)
    _confirm(campaign, evidence)


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
    differ = unstable(baseline.timeline, again.observed.timeline)
    repeatable = compare(baseline.timeline, again.observed.timeline, ignored=differ or frozenset())
    if differ is None or repeatable.difference is not None:
        raise _Stop(
            "nothing can be proved: the program's results differ between two unchanged runs "
            f"({repeatable.difference})"
        )
    return Without(baseline, eager, repeatable, differ)


def _try_each(
    campaign: Campaign, finding: str, candidates: Sequence[Change], evidence: _Evidence
) -> None:
    """Until one holds; first those that ran for another finding."""
    if not _came_again(finding, evidence):
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
        trial = _trial_of(campaign, change.line, (change,), evidence.trials)
        certificate = _judged(campaign, evidence, finding, [trial], (change,))
        if certificate.holds and change.searches and trial.observed is not None:
            change = sufficient(change, trial.observed.receipt)
            trial = _trial_of(campaign, change.line, (change,), evidence.trials)
            certificate = _judged(campaign, evidence, finding, [trial], (change,))
        if tried in candidates or certificate.holds:
            _keep(campaign, finding, change, certificate, [trial])
        if certificate.holds:
            campaign.chosen[finding] = change
            return


def _came_again(finding: str, evidence: _Evidence) -> bool:
    return count_in(evidence.subjects[finding], evidence.without.baseline.receipt) > 0


def _try_on_top(campaign: Campaign, evidence: _Evidence) -> None:
    """What no change alone removes: all that hold so far, those with each that was refused, and
    with one of each finding. Two causes of one frame hide each other, and a limit is reached until
    the last is gone."""
    for finding in _open(campaign, evidence):
        _try_each(campaign, finding, (), evidence)  # with what ran for findings after it
    first_open = _open(campaign, evidence)
    if not first_open:
        return
    base = _chosen(campaign)
    if len(base) > 1:
        _judge_open(campaign, base, evidence)
    before = campaign.runs
    for finding in first_open:
        for change in _refused(campaign, finding):
            base = _chosen(campaign)
            if not base or finding in campaign.chosen or _is_enough(campaign, before):
                break
            _judge_open(campaign, (*base, change), evidence)
    left = [found for each in _open(campaign, evidence) if (found := _refused(campaign, each))]
    for one_each in product(*left):
        if len({*one_each}) < 2 or _is_enough(campaign, before):
            break
        changes = (*_chosen(campaign), *dict.fromkeys(one_each))
        if _judge_open(campaign, changes, evidence):
            break


def _is_enough(campaign: Campaign, before: int) -> bool:
    """Whether the last runs have to be made now, of which proofs are made."""
    reserved = (campaign.rounds + 2) * _seconds_of_a_run(campaign)
    spent = time.monotonic() - campaign.started
    over = campaign.budget_s is not None and spent + reserved > campaign.budget_s
    return over or campaign.runs - before >= MAX_ON_TOP


def _open(campaign: Campaign, evidence: _Evidence) -> list[str]:
    """Findings without a change that holds."""
    wanted = (each.id for each in campaign.wanted)
    return [each for each in wanted if each not in campaign.chosen and _came_again(each, evidence)]


def _chosen(campaign: Campaign) -> tuple[Change, ...]:
    """All that the findings need, each once."""
    needed = (
        (change, *campaign.beside.get(finding, ())) for finding, change in campaign.chosen.items()
    )
    return tuple(dict.fromkeys(change for group in needed for change in group))


def _refused(campaign: Campaign, finding: str) -> list[Change]:
    """Those that are worth a run with others: they were applied, and the answers were equal."""
    return [
        change
        for change, (certificate, _, _) in campaign.tried.get(finding, {}).items()
        if all(point.passed for point in certificate.points if point.name in ("applied", "answers"))
    ]


def _judge_open(campaign: Campaign, changes: tuple[Change, ...], evidence: _Evidence) -> bool:
    """Runs the changes together, and keeps them for the findings that only they remove; all others
    must hold with them as well, and none may be there for nothing. False where nothing is kept."""
    added = [change for change in changes if change not in _chosen(campaign)]
    name = f"together: {'; '.join(change.line for change in changes)}"
    try:
        trial = _trial_of(campaign, name, changes, evidence.trials)
    except EditImpossible:  # two edits of one place
        return False
    if _refusal(campaign, evidence, [trial], changes) is not None:
        return False
    held: dict[str, Certificate] = {}
    for finding in _open(campaign, evidence):
        certificate = _judged(campaign, evidence, finding, [trial], changes)
        if certificate.holds:
            held[finding] = certificate
    own = {each: [item for item in added if item in _refused(campaign, each)] for each in held}
    needed = {change for of_finding in own.values() for change in of_finding}
    if len(added) > 1 and needed != {*added}:
        return False
    for finding, certificate in held.items():
        change = (*own[finding], *added, *changes)[0]
        campaign.chosen[finding] = change
        campaign.beside[finding] = tuple(each for each in changes if each != change)
        _keep(campaign, finding, change, certificate, [trial])
    return bool(held)


def _judged(
    campaign: Campaign,
    evidence: _Evidence,
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


def _confirm(campaign: Campaign, evidence: _Evidence) -> None:
    """The chosen changes together, and again; each alone again where they do not go together."""
    chosen = _chosen(campaign)
    if len(chosen) > 1:
        if _confirm_together(campaign, evidence, chosen):
            campaign.together = chosen
            return
        campaign.notes.append("the changes do not go together: each is proved alone")
    for group in dict.fromkeys(map(frozenset, _groups(campaign).values())):
        changes = tuple(change for change in chosen if change in group)
        name = f"again: {'; '.join(change.line for change in changes)}"
        again = range(max(1, campaign.rounds - 1))
        _prove(campaign, evidence, [_trial(campaign, name, changes) for _ in again], changes)
    if len(chosen) == 1 and campaign.proved:
        campaign.together = chosen


def _confirm_together(campaign: Campaign, evidence: _Evidence, chosen: tuple[Change, ...]) -> bool:
    name = "all of them together"
    try:
        runs = [_trial_of(campaign, name, chosen, evidence.trials)]
    except EditImpossible:  # two edits of one place
        return False
    if (why := _refusal(campaign, evidence, runs, chosen)) is not None:
        campaign.notes.append(f"with all changes together {why}")
        return False
    only_here = any({*group} == {*chosen} for group in _groups(campaign).values())
    again = range(max(campaign.rounds - 1, int(only_here)))
    runs += [_trial(campaign, f"{name}, again", chosen) for _ in again]
    return _prove(campaign, evidence, runs, chosen)


def _groups(campaign: Campaign) -> dict[str, tuple[Change, ...]]:
    """All that each finding needs."""
    return {
        finding: (change, *campaign.beside.get(finding, ()))
        for finding, change in campaign.chosen.items()
    }


def _refusal(
    campaign: Campaign, evidence: _Evidence, runs: Sequence[Trial], changes: Sequence[Change]
) -> str | None:
    """Why runs with changes prove not all findings that these are for; None where they do."""
    for finding, group in _groups(campaign).items():
        if {*group} <= {*changes}:
            certificate = _judged(campaign, evidence, finding, runs, group, changes)
            if not certificate.holds:
                return f"finding {finding[1:]} is refused: {certificate.reason}"
    return None


def _prove(
    campaign: Campaign, evidence: _Evidence, runs: Sequence[Trial], changes: Sequence[Change]
) -> bool:
    """Keeps the certificates of all runs with each finding's changes; False where one does not
    hold."""
    every = len(changes) > 1 and {*changes} == {*_chosen(campaign)}
    found: dict[str, tuple[Certificate, list[Trial]]] = {}
    for finding, group in _groups(campaign).items():
        if {*group} == {*changes} or (every and {*group} <= {*changes}):
            first = evidence.trials[frozenset(group)]
            seen = [first, *(run for run in runs if run is not first)]
            found[finding] = _judged(campaign, evidence, finding, seen, group, changes), seen
    holds = all(certificate.holds for certificate, _ in found.values())
    for finding, (certificate, seen) in found.items():
        if holds or not every:
            _keep(campaign, finding, campaign.chosen[finding], certificate, seen)
            if certificate.holds and certificate.runs > 1:
                campaign.proved[finding] = campaign.chosen[finding]
    return holds


def _trial_of(campaign: Campaign, name: str, changes: Sequence[Change], trials: _Trials) -> Trial:
    """The run with these changes, which is made once."""
    key = frozenset(changes)
    if key not in trials:
        trials[key] = _trial(campaign, name, changes)
    return trials[key]


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
    one_run = _seconds_of_a_run(campaign)
    if campaign.budget_s is not None and spent + one_run > campaign.budget_s:
        raise _Stop(
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
        raise _Stop(f"interrupted in run {campaign.runs}: what was not tried by then is left out")
    return trial


def _seconds_of_a_run(campaign: Campaign) -> float:
    return campaign.baseline.wall_s if campaign.baseline is not None else 0.0


def _results(campaign: Campaign) -> tuple[Result, ...]:
    candidates = candidates_by_finding(campaign.receipt, campaign.wanted)
    return tuple(
        Result(finding, tuple(_tried(campaign, finding.id)), len(candidates[finding.id]))
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
