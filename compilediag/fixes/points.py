"""A certificate: its points, and the figures of each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """A number without and with the change; of several runs with it the worst."""

    name: str
    before: float | None
    after: float | None
    unit: str = ""
    """"" for counts, "s", "µs", "bytes" or "%"."""


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a certificate."""

    name: str
    """"applied", "finding", "others", "compiled", "padding" (of changes that pad), "answers",
    "time", "cost"."""
    passed: bool | None
    """None: stated, not judged."""
    sentence: str
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True, slots=True)
class Certificate:
    """What was seen of a change."""

    points: tuple[Point, ...]
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
    def figures(self) -> tuple[Figure, ...]:
        """Those of all points."""
        return tuple(figure for point in self.points for figure in point.figures)
