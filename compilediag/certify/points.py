"""Types of a certificate: two executed states of a program, and the points that were compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from compilediag.receipt.schema.compiles import ProofFigure, ProofPoint
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import Record
from compilediag.timeline.timeline import Timeline

Outcome = Literal["holds", "fails", "undecided", "stated"]
"""Of a point. "stated": reported, and not judged."""

Verdict = Literal["proved", "refused", "not decided"]

Execution = Literal["again", "eager"]
"""Of the old state: once more as it is, or with nothing compiled."""


@dataclass(frozen=True, slots=True)
class ExecutedState:
    """One recorded execution of one state of a program."""

    receipt: Receipt
    timeline: Timeline
    problem: str | None = None  #: Why it did not end well; None where it did.
    is_watched: bool = True  #: Which lines of the change ran is known of it.


class JudgedPoint(Record, frozen=True):
    """One point of a certificate."""

    #: program, exercised, better, compiled, results, other inputs or cost.
    name: str
    outcome: Outcome  #: holds, fails, undecided, or stated: reported and not judged.
    sentence: str  #: What was seen, or what is missing.
    figures: tuple[ProofFigure, ...] = ()  #: The numbers behind it.
    details: tuple[str, ...] = ()  #: Every case behind the sentence; only with `--all`.


def convert_points(points: Iterable[JudgedPoint]) -> tuple[ProofPoint, ...]:
    """Convert points to those of a receipt's proofs."""
    return tuple(
        ProofPoint(
            name=point.name,
            passed=None if point.outcome == "stated" else point.outcome == "holds",
            sentence=point.sentence,
            figures=point.figures,
        )
        for point in points
    )


@dataclass(frozen=True, slots=True)
class Certificate:
    """The points that were compared of two states."""

    points: tuple[JudgedPoint, ...]
    further: Execution | None = None  #: What could be executed to decide it.

    def leave_open(self, why: str) -> Certificate:
        """Leave it undecided after an end from outside: what a further execution may excuse is no
        failure yet."""
        points = (
            replace(point, outcome="undecided")
            if point.outcome == "fails" and self.further is not None
            else point
            for point in self.points
        )
        return Certificate((JudgedPoint("interrupted", "undecided", why), *points))

    @property
    def verdict(self) -> Verdict:
        """Refused where a point fails, not decided where one is undecided."""
        outcomes = {point.outcome for point in self.points}
        if "fails" in outcomes:
            return "refused"
        return "not decided" if "undecided" in outcomes else "proved"

    @property
    def reason(self) -> str:
        """The first point that fails, or else is undecided; empty where it is proved."""
        for outcome in ("fails", "undecided"):
            for point in self.points:
                if point.outcome == outcome:
                    return point.sentence
        return ""
