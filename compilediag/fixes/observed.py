"""Runs of a program as certificates see them, without a change and with it; and a certificate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from compilediag.compare.run_baseline import RunBaseline, run_baseline
from compilediag.fixes.answers import Exact, Key, OutputComparison, compare, exact_answers
from compilediag.receipt.schema.compiles import ProofFigure, ProofPoint
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.changes import Declared
from compilediag.timeline.timeline import Timeline


@dataclass(frozen=True)
class Observed:
    """One run of the program, and what is known of it."""

    receipt: Receipt
    timeline: Timeline
    problem: str | None = None
    """Why it is no evidence: it failed, or hung."""
    printed: tuple[str, ...] = ()
    """Results that it printed, in their order."""

    @cached_property
    def known(self) -> RunBaseline:
        """Its causes, breaks and frames by key."""
        return run_baseline(self.receipt)


@dataclass(frozen=True)
class Without:
    """What a change is judged by: the program without it, compiled and eager."""

    baseline: Observed
    reference: Observed | None
    """Without compiling anything; None where that does not run."""
    repeatable: OutputComparison | None = None
    """The baseline against a second one; None where none was needed."""
    unstable: frozenset[Key] = frozenset()
    """What modules hold that is another one in each unchanged run: it is not compared."""
    precise: Observed | None = None
    """Eager, with each sampled call in float64 beside it; None where none was needed."""

    def compared(self, unchanged: Observed, run: Observed, declared: Declared) -> OutputComparison:
        """A run with a change that declares something, against one without."""
        return compare(
            unchanged.timeline, run.timeline, declared, self.exact, ignored=self.unstable
        )

    @cached_property
    def exact(self) -> Mapping[Key, Exact]:
        """What excuses differences by rounding."""
        if self.reference is None or self.precise is None:
            return {}
        return exact_answers(self.reference.timeline, self.precise.timeline)


def proof_figure(
    name: str, before: float | None, after: float | None, unit: str = ""
) -> ProofFigure:
    """A figure as receipts have it, whatever kind of number it is."""
    before, after = (None if number is None else float(number) for number in (before, after))
    return ProofFigure(name, before, after, unit)


def worst(
    name: str,
    baseline: Observed,
    runs: Sequence[Observed],
    value: Callable[[Observed], float | None],
    unit: str = "",
) -> ProofFigure:
    """A figure of runs with a change: the worst of them, without those that have none."""
    after = [found for run in runs if (found := value(run)) is not None]
    return proof_figure(name, value(baseline), max(after, default=None), unit)


@dataclass(frozen=True, slots=True)
class Certificate:
    """What was seen of a change."""

    points: tuple[ProofPoint, ...]
    runs: int
    """With the change."""

    @property
    def holds(self) -> bool:
        """No point has failed."""
        return all(point.passed is not False for point in self.points)

    @property
    def reason(self) -> str:
        """The first point that failed; empty where none has."""
        failed = (point for point in self.points if point.passed is False)
        return next((point.sentence for point in failed), "")

    @property
    def figures(self) -> tuple[ProofFigure, ...]:
        """Those of all points."""
        return tuple(figure for point in self.points for figure in point.figures)
