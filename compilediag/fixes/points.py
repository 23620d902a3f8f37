"""What a certificate is made of: points, and the figures they state."""

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
