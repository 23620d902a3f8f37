"""A campaign in progress: its findings, its runs, each within the budget and each set of changes
once, and the certificates of changes that they give."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from compilediag.fixes.certificate import judge, needs_float64
from compilediag.fixes.observed import Certificate, Observed, Subject, Without, count_in
from compilediag.receipt.schema.compiles import FindingRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.changes import Change, declared_by, plan_of
from compilediag.rules.variables import joined
from compilediag.runs.trials.one import SEED, Trial, Trials
from compilediag.runs.trials.sources import labels_of, source_changes
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
    without: Without = field(init=False)
    """What changes are judged by."""
    precise: Observed | None = None
    """Eager, with sampled calls in float64 too, once something depends on it."""
    trials: dict[frozenset[Change], Trial] = field(default_factory=dict[frozenset[Change], Trial])
    """The runs by what they had."""
    tried: dict[str, dict[Change, tuple[Certificate, str]]] = field(
        default_factory=dict[str, "dict[Change, tuple[Certificate, str]]"]
    )
    """Certificates and outputs, by the id of the finding, as the next four."""
    subjects: dict[str, Subject] = field(default_factory=dict[str, Subject])
    proved: dict[str, Change] = field(default_factory=dict[str, Change])
    chosen: dict[str, Change] = field(default_factory=dict[str, Change])
    beside: dict[str, tuple[Change, ...]] = field(default_factory=dict[str, "tuple[Change, ...]"])
    """What the change of a finding needs beside it."""
    together: tuple[Change, ...] = ()
    """The changes that were proved in one run."""

    @property
    def run_s(self) -> float:
        """What a run takes; 0 before the first one."""
        return self.baseline.wall_s if self.baseline is not None else 0.0

    def came_again(self, finding: str) -> bool:
        """The program has it in the run that changes are compared with."""
        return count_in(self.subjects[finding], self.without.baseline.receipt) > 0

    def open_findings(self) -> list[str]:
        """Findings without a change that holds."""
        wanted = (each.id for each in self.wanted if each.id not in self.chosen)
        return [each for each in wanted if self.came_again(each)]

    def changes_by_finding(self) -> dict[str, tuple[Change, ...]]:
        """All that each finding needs."""
        return {key: (change, *self.beside.get(key, ())) for key, change in self.chosen.items()}

    def chosen_changes(self) -> tuple[Change, ...]:
        """All that the findings need, each once."""
        groups = self.changes_by_finding().values()
        return tuple(dict.fromkeys(change for group in groups for change in group))

    def worth_another_run(self, finding: str) -> list[Change]:
        """Those that are worth a run with others: they were applied, and the answers were equal."""
        return [
            change
            for change, (certificate, _) in self.tried.get(finding, {}).items()
            if all(x.passed for x in certificate.points if x.name in ("applied", "answers"))
        ]

    def keep(self, finding: str, change: Change, found: Certificate, last: Trial) -> None:
        """Writes down what a change did for a finding."""
        self.tried.setdefault(finding, {})[change] = found, last.output

    def edited_files(self, changes: Iterable[Change]) -> tuple[SourceChange, ...]:
        """The files of the program as the changes edit them.

        Raises:
            EditImpossible: a file is not what ran any more.
        """
        digests = self.receipt.header.provenance.source_sha256
        return source_changes((edit for change in changes for edit in change.edits), digests)

    def trial_of(self, name: str, changes: Sequence[Change]) -> Trial:
        """The run with these changes, which is made once."""
        key = frozenset(changes)
        if key not in self.trials:
            self.trials[key] = self.make_trial(name, changes)
        return self.trials[key]

    def make_trial(
        self,
        name: str,
        changes: Sequence[Change] = (),
        *,
        stance: str | None = None,
        reference: bool = False,
    ) -> Trial:
        """One run.

        Raises:
            Stop: there is no budget for it, or it was interrupted.
        """
        spent = time.monotonic() - self.started
        if self.budget_s is not None and spent + self.run_s > self.budget_s:
            raise Stop(
                f"the budget of {self.budget_s:g} s has no room for another run, which takes about "
                f"{self.run_s:.0f} s: not every change was tried"
            )
        edits = self.edited_files(changes)
        variables = joined(pair for change in changes for pair in change.variables)
        limit = self.program.options.timeout_s
        if limit is None and self.run_s:
            limit = TIMEOUT_FACTOR * self.run_s + TIMEOUT_EXTRA_S
        plan = plan_of(changes, seed=SEED, stance=stance)
        plan = replace(plan, sources=edits, reference=reference)
        trial = self.run(name, name, plan, limit, variables)
        if trial.interrupted:
            raise Stop(f"interrupted in run {self.runs}: what was not tried by then is left out")
        return trial

    def judged(
        self,
        finding: str,
        trials: Sequence[Trial],
        changes: Sequence[Change],
        others: Sequence[Change] = (),
    ) -> Certificate:
        """The certificate of changes for a finding, in runs that may have others too."""
        before = self.without.baseline
        seen = [
            trial.observed
            or Observed(before.receipt, before.timeline, trial.problem or "it left no receipt")
            for trial in trials
        ]
        labels = [label for change in changes for label in change.labels]
        labels += labels_of(edit for change in changes for edit in change.edits)
        declared = declared_by(changes, others)

        def certificate() -> Certificate:
            known = replace(self.without, precise=self.precise)
            subject = self.subjects[finding]
            return judge(subject, known, seen, labels=labels, declared=declared)

        found = certificate()
        if self.precise is None and needs_float64(found, self.without, seen, declared):
            name = "eager, with calls in float64"
            trial = self.make_trial(name, stance="force_eager", reference=True)
            # Where it does not run, the eager run without references.
            self.precise = self.without.reference if trial.problem else trial.observed
            return certificate()
        return found

    def refusal(self, runs: Sequence[Trial], changes: Sequence[Change]) -> str | None:
        """Why runs with changes prove not all findings that these are for; None where they do."""
        for finding, group in self.changes_by_finding().items():
            if {*group} <= {*changes}:
                certificate = self.judged(finding, runs, group, changes)
                if not certificate.holds:
                    return f"finding {finding[1:]} is refused: {certificate.reason}"
        return None
