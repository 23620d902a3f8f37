"""What changed from one receipt to another, as values: made by `diff`, shown by views.

Structs of msgspec, because these commands start in tens of milliseconds: defining a frozen
dataclass takes the better part of one, a named tuple a tenth of that, a struct a fortieth.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from compilediag.compare.keys import CauseKey, CountChange


class CauseChange(Struct, frozen=True):
    """One cause and the recompiles it had a part in."""

    key: CauseKey
    before: int
    after: int
    line: int | None
    """Where it is in the later receipt that has it."""
    expected: str | None
    actual: str | None


class BreakChange(Struct, frozen=True):
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


class FrameChange(Struct, frozen=True):
    """One frame: compiles in both receipts, 0 where it is absent, and whether it ran eager."""

    file: str
    function: str
    before: int
    after: int
    eager_before: bool
    eager_after: bool
    present_before: bool
    present_after: bool


class FieldChange(Struct, frozen=True):
    """A field whose values differ, by path."""

    path: str
    before: Any
    after: Any


class TimingChange(Struct, frozen=True):
    """Seconds of both receipts; advisory: nothing may pass or fail because of it."""

    name: str
    before_s: float | None
    after_s: float | None


class NumberChange(Struct, frozen=True):
    """A figure of both receipts, its unit in its name; None where not measured. Advisory."""

    name: str
    before: float | None
    after: float | None


class Comparison(Struct, frozen=True):
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
    numbers: tuple[NumberChange, ...] = ()
    tracked_lanes: tuple[FieldChange, ...] = ()
    """Configurations of tracked runs that differ: their figures are not compared."""
    lane_not_told: tuple[FieldChange, ...] = ()
    """Fields of the lane that the version of the older receipt did not have."""

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
