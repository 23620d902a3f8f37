"""A campaign in progress: the findings that changes are tried for, the executions that were made,
and what became of each change. `search.py` says in which order they are made."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from compilediag.certify.points import Certificate, JudgedPoint
from compilediag.certify.totals import find_growth
from compilediag.fixes.certificate import check_finding, check_padding
from compilediag.fixes.proof_types import (
    FindingIdentity,
    ListedChanges,
    TriedChange,
    identify_finding,
)
from compilediag.receipt.schema.compiles import CompileEvent, FindingRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.candidates import list_changes
from compilediag.rules.changes import ProgramChange, group_by_file
from compilediag.rules.make_finding import shorten
from compilediag.runs.certify.execute import Pair
from compilediag.runs.certify.options import CertifyOptions
from compilediag.runs.certify.recorded import find_recorded_run
from compilediag.runs.certify.states import read_recorded_sources, read_sources
from compilediag.runs.checkout import find_repository_root
from compilediag.runs.fix.arm import Arm, Attempt, make_unchanged_states
from compilediag.runs.fix.sources import list_possible, make_changes
from compilediag.runs.supervised.run import Program
from compilediag.runs.trials.trial import Stop, Trials
from compilediag_harness.wire import SourceChange

STEPS_AFTER = 2
"""Steps that a short run makes after the last that a finding needs: it has to stay away."""

MOST_OF_RUN = 0.7
"""A short run is not cut where it would be longer than this share of the whole."""


@dataclass(slots=True, kw_only=True)
class Campaign:
    """A campaign in progress."""

    receipt: Receipt
    """Whose findings they are."""
    wanted: tuple[FindingRecord, ...]
    whole: Arm
    """The program as it is run, of which certificates are made."""
    short: Arm | None
    """The program with the backend "eager", and no longer than the findings need; None where that
    shows nothing."""
    listed: dict[str, ListedChanges]
    """What there is to try, by the id of the finding, as the next two."""
    tried: dict[str, dict[ProgramChange, TriedChange]] = field(
        default_factory=dict[str, "dict[ProgramChange, TriedChange]"]
    )
    chosen: dict[str, ProgramChange] = field(default_factory=dict[str, ProgramChange])
    """The change that removed a finding in the search."""
    together: tuple[ProgramChange, ...] = ()
    """The changes that are certified as one."""
    budget_s: float | None = None
    started: float = field(default_factory=time.monotonic)
    notes: list[str] = field(default_factory=list[str])
    """What was not done, and why."""
    stopped: bool = False
    interrupted: bool = False

    @property
    def trials(self) -> Trials:
        """The executions that were made."""
        return self.whole.pair.trials

    def get_identity(self, finding: str) -> FindingIdentity:
        """Get what a finding is known by in other runs."""
        of_id = {item.id: item for item in self.wanted}
        return identify_finding(of_id[finding], self.receipt)

    def list_chosen(self) -> tuple[ProgramChange, ...]:
        """List the changes that were found, each once."""
        return tuple(dict.fromkeys(self.chosen.values()))

    def list_worth_retrying(self, finding: str) -> list[ProgramChange]:
        """List the changes of a finding that failed only in what torch counts: what hides it may be
        gone now."""
        counted = ("finding", "better")
        return [
            change
            for change, tried in self.tried.get(finding, {}).items()
            if all(x.outcome != "fails" or x.name in counted for x in tried.certificate.points)
        ]

    def make_edited_files(self, changes: Iterable[ProgramChange]) -> tuple[SourceChange, ...]:
        """Make the files of the program as the changes edit them; nothing is written.

        Raises:
            EditImpossible: a file is not what ran any more, or two edits are of one place.
        """
        digests = self.receipt.header.provenance.source_sha256
        return make_changes((edit for change in changes for edit in change.edits), digests)

    def attempt(self, arm: Arm, changes: Sequence[ProgramChange], what: str) -> Attempt:
        """Execute the program with these changes, or return what came of it before.

        Raises:
            Stop: there is no budget for it.
            EditImpossible: they cannot be made together.
        """
        known = arm.attempts.get(frozenset(changes))
        if known is not None:
            return known
        edits = self.make_edited_files(changes)
        self.require_budget(arm)
        return arm.attempt(changes, edits, shorten(what, 100))

    def require_budget(self, arm: Arm) -> None:
        """Require time for another execution.

        Raises:
            Stop: there is none.
        """
        spent = time.monotonic() - self.started
        if self.budget_s is not None and spent + arm.run_s > self.budget_s:
            raise Stop(
                f"the budget of {self.budget_s:g} s has no room for another run, which takes about "
                f"{arm.run_s:.0f} s: not every change was tried"
            )

    def record(
        self,
        finding: str,
        change: ProgramChange,
        attempt: Attempt,
        base: Attempt | None = None,
    ) -> Certificate:
        """Record what a change did for a finding in an execution, and return its certificate.
        `base`: the same execution without the change."""
        certificate = self._certify_finding(finding, change, attempt, base)
        former = self.tried.setdefault(finding, {}).get(change)
        self.tried[finding][change] = TriedChange(
            change,
            certificate,
            is_final=attempt.is_whole,
            runs=1 + (former.runs if former is not None else 0),
            output=attempt.output,
            beside=tuple(
                key
                for key, its in self.chosen.items()
                if its in attempt.changes and its != change and key != finding
            ),
        )
        return certificate

    def _certify_finding(
        self, finding: str, change: ProgramChange, attempt: Attempt, base: Attempt | None
    ) -> Certificate:
        before, after = attempt.before, attempt.after
        if before is None or after is None or after.problem != before.problem:
            return attempt.certificate
        identity, points = self.get_identity(finding), list(attempt.certificate.points)
        own = check_finding(identity, before.receipt, after.receipt, change.left)
        if base is not None and base.after is not None:
            grown = find_growth(base.after.receipt, after.receipt)
            if grown is not None:
                points.append(JudgedPoint("beside", "fails", f"something got worse: {grown}"))
        if identity.unit == "findings" and find_growth(before.receipt, after.receipt) is None:
            # Padding, synchronisations: none of torch's totals, of which none need fall then.
            points = [point for point in points if point.name != "better"]
        padding = check_padding(change.pads, before.timeline, after.timeline)
        return Certificate((own, *points, *padding))


def list_candidates(receipt: Receipt, wanted: Sequence[FindingRecord]) -> dict[str, ListedChanges]:
    """List what would be tried for each finding, by its id, and what cannot be."""
    hashes = receipt.header.provenance.source_sha256
    return {finding.id: list_possible(list_changes(finding, receipt), hashes) for finding in wanted}


def list_editable_files(campaign: Campaign) -> list[str]:
    """List the files that candidates edit, by path."""
    listed = campaign.listed.values()
    edits = [edit for changes in listed for change in changes.possible for edit in change.edits]
    return list(group_by_file(edits))


def make_campaign(
    receipt: Receipt,
    wanted: Sequence[FindingRecord],
    program: Program,
    announce: Callable[[str], None],
    *,
    quiet: bool = False,
    budget_s: float | None = None,
    edits_first: bool = False,
) -> Campaign:
    """Make a campaign for findings of a receipt; nothing is executed. `program`: as the run of the
    receipt had it; `edits_first`: edits are tried before what needs none."""
    listed = list_candidates(receipt, wanted)
    if edits_first:  # but for other sizes, which come when nothing makes those of the program do
        listed = {
            key: changes._replace(
                possible=tuple(sorted(changes.possible, key=lambda x: (bool(x.pads), not x.edits)))
            )
            for key, changes in listed.items()
        }
    tree = read_sources(find_repository_root(os.path.realpath(os.getcwd())) or os.getcwd())
    recorded = find_recorded_run(program.words)
    if recorded is not None and read_recorded_sources(recorded, tree) != tree:
        recorded = None
    states = make_unchanged_states(tree)
    options = CertifyOptions(quiet=quiet, timeout_s=program.options.timeout_s)
    trials = Trials(program, announce, quiet=quiet)
    pair = Pair(states, options, trials, program, states.change)
    steps = choose_steps(receipt, wanted) or program.options.steps
    cut = replace(program, options=replace(program.options, steps=steps))
    short = replace(pair, program=cut, backend="eager", options=replace(options, no_vary=True))
    wall_s = (receipt.goodput.wall_s if receipt.goodput is not None else None) or 0.0
    return Campaign(
        receipt=receipt,
        wanted=tuple(wanted),
        whole=Arm(pair=pair, recorded=recorded, run_s=wall_s),
        short=Arm(pair=short),
        listed=listed,
        budget_s=budget_s,
    )


def choose_steps(receipt: Receipt, wanted: Iterable[FindingRecord]) -> int | None:
    """Choose after how many steps a short run ends: a little after the last one in which a finding
    compiles something; None where the whole program is needed, or nearly."""
    ids = {finding.id for finding in wanted}
    breaks = any(site.finding in ids for site in receipt.compile.breaks)
    steps = [
        event.step
        for event in receipt.compile.events
        if (breaks and event.kind == "first") or _is_about(event, ids)
    ]
    known = [step for step in steps if step is not None]
    count = receipt.steps.count if receipt.steps is not None else 0
    last = max(known, default=0) + 1 + STEPS_AFTER
    return last if known and len(known) == len(steps) and last <= MOST_OF_RUN * count else None


def _is_about(event: CompileEvent, ids: set[str]) -> bool:
    return any(cause.finding in ids for cause in event.causes)
