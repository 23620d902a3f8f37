"""The state of a campaign: its findings so far, and the evidence that changes are judged by."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from compilediag.fixes.observed import Certificate, Observed, Subject, Without, count_in
from compilediag.receipt.schema.compiles import FindingRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.changes import Change
from compilediag.runs.supervised.program import Program
from compilediag.runs.trials.one import Trial
from compilediag.runs.trials.sources import Listed

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
    listed: Listed
    """What there was to try."""

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


class Stop(Exception):
    """No more runs: the message says why."""


Trials = dict[frozenset[Change], Trial]
"""The runs by what they had."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What changes are judged by, and the runs that were made."""

    without: Without
    subjects: Mapping[str, Subject]
    trials: Trials


def seconds_of_a_run(campaign: Campaign) -> float:
    """What a run takes; 0 before the first one."""
    return campaign.baseline.wall_s if campaign.baseline is not None else 0.0


def came_again(finding: str, evidence: Evidence) -> bool:
    """The program has it in the run that changes are compared with."""
    return count_in(evidence.subjects[finding], evidence.without.baseline.receipt) > 0


def without_change(campaign: Campaign, evidence: Evidence) -> list[str]:
    """Findings without a change that holds."""
    wanted = (each.id for each in campaign.wanted)
    return [each for each in wanted if each not in campaign.chosen and came_again(each, evidence)]


def chosen_changes(campaign: Campaign) -> tuple[Change, ...]:
    """All that the findings need, each once."""
    groups = changes_by_finding(campaign).values()
    return tuple(dict.fromkeys(change for group in groups for change in group))


def changes_by_finding(campaign: Campaign) -> dict[str, tuple[Change, ...]]:
    """All that each finding needs."""
    return {
        finding: (change, *campaign.beside.get(finding, ()))
        for finding, change in campaign.chosen.items()
    }


def worth_another_run(campaign: Campaign, finding: str) -> list[Change]:
    """Those that are worth a run with others: they were applied, and the answers were equal."""
    return [
        change
        for change, (certificate, _, _) in campaign.tried.get(finding, {}).items()
        if all(point.passed for point in certificate.points if point.name in ("applied", "answers"))
    ]


def keep(
    campaign: Campaign,
    finding: str,
    change: Change,
    certificate: Certificate,
    trials: Sequence[Trial],
) -> None:
    """Writes down what a change did for a finding."""
    seen = [trial.observed for trial in trials if trial.observed is not None]
    output = trials[-1].output
    campaign.tried.setdefault(finding, {})[change] = (certificate, seen, output)
