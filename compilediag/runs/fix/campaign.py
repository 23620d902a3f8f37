"""A campaign: the runs that show which changes remove which findings, each within the budget and
each set of changes once, and the certificates of changes that they give.

The program as it is, once more without compiling, each change until one holds for its finding, what
was refused alone on top of those, the chosen ones together, and the same once more. What is known
stays known when it is stopped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from compilediag.errors import CompilediagError
from compilediag.fixes.certificate import judge, needs_float64
from compilediag.fixes.outputs import compare_outputs, find_unstable_state
from compilediag.fixes.proof_types import (
    FindingIdentity,
    FindingResult,
    ListedChanges,
    ObservedRun,
    TrialCertificate,
    TriedChange,
    UnchangedRuns,
    count_finding,
    identify_finding,
)
from compilediag.receipt.schema.compiles import FindingRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.candidates import list_changes
from compilediag.rules.changes import (
    EditImpossible,
    ProgramChange,
    build_trial_plan,
    group_by_file,
    locate_functions,
    merge_effects,
)
from compilediag.rules.environment_variables import join_values
from compilediag.runs.fix.sources import format_labels, list_possible, make_changes
from compilediag.runs.trials.trial import SEED, Trial, Trials
from compilediag_harness.wire import SourceChange

ROUNDS = 2
"""Runs with all that is proved, unless the user wants more."""

TIMEOUT_FACTOR, TIMEOUT_EXTRA_S = 4.0, 60.0
"""A trial may take so many times as long as the program took as it is, and so much longer."""


class Stop(Exception):
    """No more runs: the message says why."""


@dataclass(slots=True, kw_only=True)
class Campaign(Trials):
    """A campaign in progress."""

    receipt: Receipt
    """Whose findings they are."""
    wanted: tuple[FindingRecord, ...]
    edits_first: bool = False
    """Edits of the program are tried before what needs none."""
    rounds: int = ROUNDS
    notes: list[str] = field(default_factory=list[str])
    """What was not done, and why."""
    stopped: bool = False
    baseline: Trial | None = None
    """The program as it is."""
    unchanged: UnchangedRuns = field(init=False)
    """The runs without a change, by which changes are judged."""
    precise: ObservedRun | None = None
    """Eager, with sampled calls in float64 too, once something depends on it."""
    trials: dict[frozenset[ProgramChange], Trial] = field(
        default_factory=dict[frozenset[ProgramChange], Trial]
    )
    """The runs by what they had."""
    tried: dict[str, dict[ProgramChange, tuple[TrialCertificate, str]]] = field(
        default_factory=dict[str, "dict[ProgramChange, tuple[TrialCertificate, str]]"]
    )
    """Certificates and outputs, by the id of the finding, as the next three."""
    identities: dict[str, FindingIdentity] = field(default_factory=dict[str, FindingIdentity])
    proved: dict[str, ProgramChange] = field(default_factory=dict[str, ProgramChange])
    chosen: dict[str, tuple[ProgramChange, ...]] = field(
        default_factory=dict[str, "tuple[ProgramChange, ...]"]
    )
    """The change that holds for a finding, and those that it needs beside it."""
    together: tuple[ProgramChange, ...] = ()
    """The changes that were proved in one run."""

    @property
    def run_s(self) -> float:
        """Seconds that a run takes; 0 before the first one."""
        return self.baseline.wall_s if self.baseline is not None else 0.0

    def is_reproduced(self, finding: str) -> bool:
        """True where the program has the finding in the run that changes are compared with."""
        return count_finding(self.identities[finding], self.unchanged.baseline.receipt) > 0

    def list_open_findings(self) -> list[str]:
        """List the ids of findings without a change that holds."""
        wanted = (finding.id for finding in self.wanted if finding.id not in self.chosen)
        return [finding_id for finding_id in wanted if self.is_reproduced(finding_id)]

    def list_chosen_changes(self) -> tuple[ProgramChange, ...]:
        """List the changes that the findings need, each once."""
        return tuple(dict.fromkeys(change for group in self.chosen.values() for change in group))

    def list_worth_retrying(self, finding: str) -> list[ProgramChange]:
        """List the changes that are worth a run with others: they were applied, and the results of
        the program were equal."""
        return [
            change
            for change, (certificate, _) in self.tried.get(finding, {}).items()
            if all(x.passed for x in certificate.points if x.name in ("applied", "answers"))
        ]

    def make_edited_files(self, changes: Iterable[ProgramChange]) -> tuple[SourceChange, ...]:
        """Make the files of the program as the changes edit them; nothing is written.

        Raises:
            EditImpossible: a file is not what ran any more.
        """
        digests = self.receipt.header.provenance.source_sha256
        return make_changes((edit for change in changes for edit in change.edits), digests)

    def run_trial_once(self, name: str, changes: Sequence[ProgramChange]) -> Trial:
        """Run the program with these changes, or return the run that was made with them."""
        key = frozenset(changes)
        if key not in self.trials:
            self.trials[key] = self.make_trial(name, changes)
        return self.trials[key]

    def make_trial(
        self,
        name: str,
        changes: Sequence[ProgramChange] = (),
        *,
        stance: str | None = None,
        reference: bool = False,
    ) -> Trial:
        """Make one run.

        Raises:
            Stop: there is no budget for it, or it was interrupted.
        """
        spent = time.monotonic() - self.started
        if self.budget_s is not None and spent + self.run_s > self.budget_s:
            raise Stop(
                f"the budget of {self.budget_s:g} s has no room for another run, which takes about "
                f"{self.run_s:.0f} s: not every change was tried"
            )
        edits = self.make_edited_files(changes)
        variables = join_values(pair for change in changes for pair in change.variables)
        limit = self.program.options.timeout_s
        if limit is None and self.run_s:
            limit = TIMEOUT_FACTOR * self.run_s + TIMEOUT_EXTRA_S
        plan = build_trial_plan(changes, seed=SEED, stance=stance)
        plan = replace(plan, sources=edits, reference=reference)
        trial = self.run(name, name, plan, limit, variables)
        if trial.interrupted:
            raise Stop(f"interrupted in run {self.runs}: what was not tried by then is left out")
        return trial

    def judge_changes(
        self,
        finding: str,
        trials: Sequence[Trial],
        changes: Sequence[ProgramChange],
        others: Sequence[ProgramChange] = (),
    ) -> TrialCertificate:
        """Judge changes for a finding, by runs that may have others too; return their
        certificate."""
        before = self.unchanged.baseline
        seen = [
            trial.observed
            or ObservedRun(before.receipt, before.timeline, trial.problem or "it left no receipt")
            for trial in trials
        ]
        labels = [label for change in changes for label in change.labels]
        labels += format_labels(edit for change in changes for edit in change.edits)
        declared = merge_effects(changes, others)

        def make_certificate() -> TrialCertificate:
            known = replace(self.unchanged, precise=self.precise)
            identity = self.identities[finding]
            return judge(identity, known, seen, labels=labels, declared=declared)

        certificate = make_certificate()
        if self.precise is None and needs_float64(certificate, self.unchanged, seen, declared):
            name = "eager, with calls in float64"
            trial = self.make_trial(name, stance="force_eager", reference=True)
            # Where it does not run, the eager run without references.
            self.precise = self.unchanged.reference if trial.problem else trial.observed
            return make_certificate()
        return certificate

    def find_refusal(self, runs: Sequence[Trial], changes: Sequence[ProgramChange]) -> str | None:
        """Say why runs with changes prove not all findings that these are for; None if they do."""
        for finding, group in self.chosen.items():
            if {*group} <= {*changes}:
                certificate = self.judge_changes(finding, runs, group, changes)
                if not certificate.holds:
                    return f"finding {finding[1:]} is refused: {certificate.reason}"
        return None


_NO_TIME = "the budget left no time to try more changes together"

MAX_ON_TOP = 6
"""So many runs try changes that were refused alone on top of those that hold."""


def list_candidates(receipt: Receipt, wanted: Sequence[FindingRecord]) -> dict[str, ListedChanges]:
    """List what would be tried for each finding, by its id, and what cannot be."""
    hashes = receipt.header.provenance.source_sha256
    return {finding.id: list_possible(list_changes(finding, receipt), hashes) for finding in wanted}


def list_editable_files(campaign: Campaign) -> list[str]:
    """List the files that candidates edit, by path."""
    candidates = list_candidates(campaign.receipt, campaign.wanted).values()
    edits = [edit for changes in candidates for change in changes.possible for edit in change.edits]
    return list(group_by_file(edits))


def run_campaign(campaign: Campaign, baseline: Trial | None = None) -> tuple[FindingResult, ...]:
    """Make the runs, and write what becomes of them into the campaign; an exception of ours or
    Ctrl-C ends them and loses nothing. `baseline`: the program as it is, if that was run already.
    """
    note = None
    try:
        _run_changes(campaign, baseline)
    except Stop as why:
        note = str(why)
    except KeyboardInterrupt:
        note = "interrupted: what was not tried by then is left out"
        campaign.interrupted = True
    except CompilediagError as error:
        note = f"no more runs: {error}"
    if note is not None:
        campaign.notes.append(note)
        campaign.stopped = True
    listed = list_candidates(campaign.receipt, campaign.wanted)
    return tuple(_make_result(campaign, finding, listed[finding.id]) for finding in campaign.wanted)


def _run_changes(campaign: Campaign, given: Trial | None) -> None:
    listed = list_candidates(campaign.receipt, campaign.wanted)
    if not any(changes.possible for changes in listed.values()):
        return
    baseline = campaign.baseline = given or campaign.make_trial("the program as it is")
    if baseline.observed is None or baseline.problem:
        raise Stop(f"the program itself does not run: {describe_failure(baseline)}")
    before, now = (x.environment.torch for x in (campaign.receipt, baseline.observed.receipt))
    if before != now:
        raise Stop(
            f"the findings are of a run with torch {before}, and the program has {now} now: name "
            "the program, `compilediag fix train.py`"
        )
    campaign.unchanged = _run_unchanged(campaign, baseline.observed)
    campaign.identities = {
        finding.id: identify_finding(finding, campaign.receipt) for finding in campaign.wanted
    }
    functions = [invocation.function for invocation in baseline.observed.timeline.invocations]
    for finding in campaign.wanted:
        changes = [locate_functions(change, functions) for change in listed[finding.id].possible]
        if campaign.edits_first:
            # But for other sizes, which come when nothing makes those of the program do.
            changes.sort(key=lambda change: (bool(change.pads), not change.edits))
        try_changes(campaign, finding.id, changes)
    try_on_top(campaign)
    confirm(campaign)


def describe_failure(trial: Trial) -> str:
    """Describe why the program as it is does not run, and where its output is."""
    reads = " (its input is empty here)" if "EOFError" in (trial.problem or "") else ""
    return f"{trial.problem}{reads}; its output: {os.path.relpath(trial.output)}"


def _run_unchanged(campaign: Campaign, baseline: ObservedRun) -> UnchangedRuns:
    reference = campaign.make_trial("eager, for its results", stance="force_eager")
    eager = None if reference.problem else reference.observed
    if eager is not None:
        comparison = compare_outputs(baseline.timeline, eager.timeline)
        if comparison.compared and comparison.difference is None:
            return UnchangedRuns(baseline, eager)
    again = campaign.make_trial("the program as it is, again")
    if again.observed is None or again.problem:
        raise Stop(f"the program did not run a second time: {again.problem}")
    differ = find_unstable_state(baseline.timeline, again.observed.timeline)
    ignored = differ or frozenset()
    repeatable = compare_outputs(baseline.timeline, again.observed.timeline, ignored=ignored)
    if differ is None or repeatable.difference is not None:
        raise Stop(
            "nothing can be proved: the program's results differ between two unchanged runs "
            f"({repeatable.difference})"
        )
    return UnchangedRuns(baseline, eager, repeatable, differ)


def _make_result(
    campaign: Campaign, finding: FindingRecord, listed: ListedChanges
) -> FindingResult:
    key, tried = finding.id, list[TriedChange]()
    # The findings whose changes its own needs too.
    own, *needed = campaign.chosen.get(key, (None,))
    beside = tuple(x for x, group in campaign.chosen.items() if x != key and group[0] in needed)
    for change, (certificate, output) in campaign.tried.get(key, {}).items():
        proved = campaign.proved.get(key) == change and certificate.holds
        with_others = beside if change == own else ()
        tried.append(TriedChange(change, certificate, proved, output, with_others))
    return FindingResult(finding, tuple(tried), listed)


def confirm(campaign: Campaign) -> None:
    """Run the chosen changes together, and again; each alone again if they do not go together."""
    chosen = campaign.list_chosen_changes()
    if len(chosen) > 1:
        if _confirm_together(campaign, chosen):
            campaign.together = chosen
            return
        campaign.notes.append("the changes do not go together: each is proved alone")
    for group in dict.fromkeys(map(frozenset, campaign.chosen.values())):
        changes = tuple(change for change in chosen if change in group)
        name = f"again: {'; '.join(change.line for change in changes)}"
        again = range(max(1, campaign.rounds - 1))
        _prove(campaign, [campaign.make_trial(name, changes) for _ in again], changes)
    if len(chosen) == 1 and campaign.proved:
        campaign.together = chosen


def _confirm_together(campaign: Campaign, chosen: tuple[ProgramChange, ...]) -> bool:
    name = "all of them together"
    try:
        runs = [campaign.run_trial_once(name, chosen)]
    except EditImpossible:  # two edits of one place
        return False
    if (why := campaign.find_refusal(runs, chosen)) is not None:
        campaign.notes.append(f"with all changes together {why}")
        return False
    only_here = any({*group} == {*chosen} for group in campaign.chosen.values())
    again = range(max(campaign.rounds - 1, int(only_here)))
    runs += [campaign.make_trial(f"{name}, again", chosen) for _ in again]
    return _prove(campaign, runs, chosen)


def _prove(campaign: Campaign, runs: Sequence[Trial], changes: Sequence[ProgramChange]) -> bool:
    """Store the certificates of all runs with each finding's changes; False where one does not
    hold."""
    every = len(changes) > 1 and {*changes} == {*campaign.list_chosen_changes()}
    certificates: dict[str, tuple[TrialCertificate, Trial]] = {}
    for finding, group in campaign.chosen.items():
        if {*group} == {*changes} or (every and {*group} <= {*changes}):
            first = campaign.trials[frozenset(group)]
            seen = [first, *(run for run in runs if run is not first)]
            certificates[finding] = campaign.judge_changes(finding, seen, group, changes), seen[-1]
    holds = all(certificate.holds for certificate, _ in certificates.values())
    for finding, (certificate, last) in certificates.items():
        if holds or not every:
            change = campaign.chosen[finding][0]
            campaign.tried.setdefault(finding, {})[change] = certificate, last.output
            if certificate.holds and certificate.runs > 1:
                campaign.proved[finding] = change
    return holds


def try_on_top(campaign: Campaign) -> None:
    """Try what no change alone removes: all that hold so far, those with each that was refused, and
    with one of each finding. Two causes of one frame hide each other, and a limit is reached until
    the last is gone."""
    for finding in campaign.list_open_findings():
        try_changes(campaign, finding, ())  # with what ran for findings after it
    first_open = campaign.list_open_findings()
    if not first_open:
        return
    base = campaign.list_chosen_changes()
    if len(base) > 1:
        _judge_open(campaign, base)
    before = campaign.runs
    for finding in first_open:
        for change in campaign.list_worth_retrying(finding):
            base = campaign.list_chosen_changes()
            if not base or finding in campaign.chosen or _is_enough(campaign, before):
                break
            _judge_open(campaign, (*base, change))
    left = [
        retryable
        for finding in campaign.list_open_findings()
        if (retryable := campaign.list_worth_retrying(finding))
    ]
    for combination in product(*left):
        if len({*combination}) < 2 or _is_enough(campaign, before):
            break
        changes = (*campaign.list_chosen_changes(), *dict.fromkeys(combination))
        if _judge_open(campaign, changes):
            break


def _is_enough(campaign: Campaign, before: int) -> bool:
    """True where the last runs have to be made now, of which proofs are made."""
    reserved = (campaign.rounds + 2) * campaign.run_s
    spent = time.monotonic() - campaign.started
    over = campaign.budget_s is not None and spent + reserved > campaign.budget_s
    if over and _NO_TIME not in campaign.notes:
        campaign.notes.append(_NO_TIME)
        campaign.stopped = True
    return over or campaign.runs - before >= MAX_ON_TOP


def _judge_open(campaign: Campaign, changes: tuple[ProgramChange, ...]) -> bool:
    """Run the changes together, and store them for the findings that only they remove; all others
    must hold with them as well, and none may be there for nothing. False where nothing is stored.
    """
    added = [change for change in changes if change not in campaign.list_chosen_changes()]
    name = f"together: {'; '.join(change.line for change in changes)}"
    try:
        trial = campaign.run_trial_once(name, changes)
    except EditImpossible:  # two edits of one place
        return False
    if campaign.find_refusal([trial], changes) is not None:
        return False
    judged = {x: campaign.judge_changes(x, [trial], changes) for x in campaign.list_open_findings()}
    held = {finding: certificate for finding, certificate in judged.items() if certificate.holds}
    own = {
        finding: [change for change in added if change in campaign.list_worth_retrying(finding)]
        for finding in held
    }
    needed = {change for of_finding in own.values() for change in of_finding}
    if len(added) > 1 and needed != {*added}:
        return False
    for finding, certificate in held.items():
        change = (*own[finding], *added, *changes)[0]
        campaign.chosen[finding] = (change, *(other for other in changes if other != change))
        campaign.tried.setdefault(finding, {})[change] = certificate, trial.output
    return bool(held)


def try_changes(campaign: Campaign, finding: str, candidates: Sequence[ProgramChange]) -> None:
    """Try changes for a finding until one holds; first those that ran for another finding."""
    if not campaign.is_reproduced(finding):
        campaign.notes.append(f"finding {finding[1:]} did not come again")
        return
    known = [change for key in campaign.trials for change in key if change not in candidates]
    for change in (*known, *candidates):
        trial = campaign.run_trial_once(change.line, (change,))
        certificate = campaign.judge_changes(finding, [trial], (change,))
        if change in candidates or certificate.holds:
            campaign.tried.setdefault(finding, {})[change] = certificate, trial.output
        if certificate.holds:
            campaign.chosen[finding] = (change,)
            return
