"""Types of a proof: a finding by what is found again in other runs, the runs without a change and
with it, a certificate, and what was tried for a finding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from compilediag.compare.keys import (
    BreakKey,
    CauseKey,
    break_key,
    cause_key,
    function_key,
    portable_file,
)
from compilediag.compare.run_baseline import RunBaseline, run_baseline
from compilediag.fixes.answers import Exact, Key, OutputComparison, compare, exact_answers
from compilediag.receipt.schema.compiles import (
    FindingRecord,
    ProofFigure,
    ProofPoint,
    RefusedChange,
)
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.changes import Change, Declared
from compilediag.timeline.timeline import Timeline

Unit = Literal["recompiles", "graph breaks", "findings"]


@dataclass(frozen=True, slots=True)
class Subject:
    """What identifies a finding in other runs of the program."""

    unit: Unit
    causes: frozenset[CauseKey] = frozenset()
    breaks: frozenset[BreakKey] = frozenset()
    key: tuple[str, ...] = ()  #: Rule, variable and place, without recompile or break of its own.


def subject_of(finding: FindingRecord, receipt: Receipt) -> Subject:
    """Identify a finding of the receipt. That of a graph break is known by the break, also where
    what goes on behind it is recompiled."""
    breaks = frozenset(
        break_key(site) for site in receipt.compile.breaks if site.finding == finding.id
    )
    if breaks:
        return Subject("graph breaks", breaks=breaks)
    causes = frozenset(
        cause_key(cause)
        for event in receipt.compile.events
        for cause in event.causes
        if cause.finding == finding.id
    )
    if causes:
        return Subject("recompiles", causes=causes)
    return Subject("findings", key=finding_key(finding))


def finding_key(finding: FindingRecord) -> tuple[str, ...]:
    """Make the key that two findings of two runs share where they are the same."""
    place = finding.location
    where = (portable_file(place.file), function_key(place.function)) if place else ()
    return (finding.rule, finding.variable or "", *where)


Place = tuple[str | None, str | None]  #: A file and a function, as keys have them.


def place_in(key: tuple[str, ...]) -> Place:
    """Get the place in the key of a finding (`make_finding_key`)."""
    return (key[2], key[3]) if len(key) > 3 else (None, None)


def count_in(subject: Subject, receipt: Receipt) -> int:
    """Count how often a run has a finding: its recompiles, its graph breaks, or itself."""
    compiled = receipt.compile
    if subject.causes:
        return sum(
            any(cause_key(cause) in subject.causes for cause in event.causes)
            for event in compiled.events
            if event.kind == "recompile"
        )
    if subject.breaks:
        return sum(break_key(site) in subject.breaks for site in compiled.breaks)
    return sum(finding_key(item) == subject.key for item in receipt.findings)


@dataclass(frozen=True)
class Observed:
    """One run of the program, with its receipt and timeline."""

    receipt: Receipt
    timeline: Timeline
    problem: str | None = None  #: Why it is no evidence: it failed, or hung.
    printed: tuple[str, ...] = ()  #: Results that it printed, in their order.

    @cached_property
    def known(self) -> RunBaseline:
        """Its causes, breaks and frames by key."""
        return run_baseline(self.receipt)


@dataclass(frozen=True)
class Without:
    """The runs that a change is judged by: the program without it, compiled and eager."""

    baseline: Observed
    reference: Observed | None  #: Without compiling anything; None where that does not run.
    repeatable: OutputComparison | None = None  #: The baseline against a second one, if needed.
    #: What modules hold that is another one in each unchanged run: it is not compared.
    unstable: frozenset[Key] = frozenset()
    precise: Observed | None = None  #: Eager with its sampled calls in float64, if needed.

    def compared(self, unchanged: Observed, run: Observed, declared: Declared) -> OutputComparison:
        """Compare a run with a change that declares something with one without."""
        return compare(
            unchanged.timeline, run.timeline, declared, self.exact, ignored=self.unstable
        )

    @cached_property
    def exact(self) -> Mapping[Key, Exact]:
        """The values in float64 that excuse differences by rounding."""
        if self.reference is None or self.precise is None:
            return {}
        return exact_answers(self.reference.timeline, self.precise.timeline)


def proof_figure(
    name: str, before: float | None, after: float | None, unit: str = ""
) -> ProofFigure:
    """Make a figure as receipts have it, whatever kind of number it is."""
    before, after = (None if number is None else float(number) for number in (before, after))
    return ProofFigure(name, before, after, unit)


def worst(
    name: str,
    baseline: Observed,
    runs: Sequence[Observed],
    value: Callable[[Observed], float | None],
    unit: str = "",
) -> ProofFigure:
    """Find the worst figure of runs with a change: the largest, without those that have none."""
    after = [found for run in runs if (found := value(run)) is not None]
    return proof_figure(name, value(baseline), max(after, default=None), unit)


@dataclass(frozen=True, slots=True)
class Certificate:
    """The points that were checked of a change, and whether they hold."""

    points: tuple[ProofPoint, ...]
    runs: int  #: With the change.

    @property
    def holds(self) -> bool:
        """True where no point has failed."""
        return all(point.passed is not False for point in self.points)

    @property
    def reason(self) -> str:
        """The first point that failed; empty where none has."""
        failed = (point for point in self.points if point.passed is False)
        return next((point.sentence for point in failed), "")

    @property
    def figures(self) -> tuple[ProofFigure, ...]:
        """The figures of all points."""
        return tuple(figure for point in self.points for figure in point.figures)


# --- what was tried ------------------------------------------------------------------------------


class Listed(NamedTuple):
    """The changes that there are to try for a finding."""

    possible: tuple[Change, ...]
    impossible: tuple[RefusedChange, ...]  #: Edits that files do not allow, each with the reason.


@dataclass(frozen=True, slots=True)
class Tried:
    """A change and what it did for one finding."""

    change: Change
    certificate: Certificate
    proved: bool
    output: str  #: File with what the program printed, of the last run with the change.
    beside: tuple[str, ...] = ()  #: Findings whose changes were there too: it was not seen alone.

    @property
    def risk(self) -> str:
        """A sentence on what else the change does, and what it needs."""
        if not self.beside:
            return self.change.risk
        numbers = " and ".join(each[1:] for each in self.beside)
        word = "finding" if len(self.beside) == 1 else "findings"
        return f"together with the change of {word} {numbers}; {self.change.risk}"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a campaign for one finding."""

    finding: FindingRecord
    tried: tuple[Tried, ...]
    listed: Listed  #: What there was to try.

    @property
    def proof(self) -> Tried | None:
        """The change that is proved; None where none is."""
        return next((item for item in self.tried if item.proved), None)
