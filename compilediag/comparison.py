"""What changed from one receipt to another, as values: made by `diff`, shown by views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class CountChange:
    """One count of both receipts."""

    name: str
    before: int
    after: int

    @property
    def change(self) -> int:
        """How many more (negative: fewer) after."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class CauseKey:
    """What makes two causes the same: never the line, which moves with every edit above it."""

    rule: str
    variable: str
    file: str | None
    function: str | None


@dataclass(frozen=True, slots=True)
class CauseChange:
    """One cause and the recompiles it had a part in."""

    key: CauseKey
    before: int
    after: int
    line: int | None
    """Where it is in the later receipt that has it."""
    expected: str | None
    actual: str | None


@dataclass(frozen=True, slots=True)
class BreakChange:
    """One graph-break site; the same if file, function, category and reason are."""

    file: str
    function: str
    category: str | None
    reason: str
    before: int
    """Sites like this one."""
    after: int
    line: int
    """Of one of them, in the later receipt that has it."""


@dataclass(frozen=True, slots=True)
class FrameChange:
    """One frame: compiles in both receipts, 0 where it is absent, and whether it ran eager."""

    file: str
    function: str
    before: int
    after: int
    eager_before: bool
    eager_after: bool
    present_before: bool
    present_after: bool


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field whose values differ, by path."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class TimingChange:
    """Seconds of both receipts; advisory: nothing may pass or fail because of it."""

    name: str
    before_s: float | None
    after_s: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """What changed from one receipt to another."""

    before_id: str
    after_id: str
    verdict: tuple[str | None, str | None]
    status: tuple[str, str]
    counts: tuple[CountChange, ...]
    """Every count, changed or not."""
    causes_new: tuple[CauseChange, ...]
    causes_gone: tuple[CauseChange, ...]
    causes_same: tuple[CauseChange, ...]
    breaks_new: tuple[BreakChange, ...]
    breaks_gone: tuple[BreakChange, ...]
    breaks_same: tuple[BreakChange, ...]
    frames: tuple[FrameChange, ...]
    """Frames that came, went, or were compiled another number of times or another way."""
    findings_new: tuple[str, ...]
    """Codes with their variable or place, "CD103 pos.pe"."""
    findings_gone: tuple[str, ...]
    environment: tuple[FieldChange, ...]
    provenance: tuple[FieldChange, ...]
    checks: tuple[FieldChange, ...]
    timings: tuple[TimingChange, ...]

    @property
    def changed(self) -> bool:
        """Whether anything but code, environment and timings differs."""
        return bool(
            any(item.change for item in self.counts)
            or self.causes_new
            or self.causes_gone
            or any(item.before != item.after for item in (*self.causes_same, *self.breaks_same))
            or self.breaks_new
            or self.breaks_gone
            or self.frames
            or self.findings_new
            or self.findings_gone
            or self.verdict[0] != self.verdict[1]
        )
