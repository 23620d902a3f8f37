"""What a receipt counts, by keys that survive edits: causes, break sites, frames, recordings.

Shared by everything that compares receipts: `diff` (two receipts) and `gate` (a receipt and a
baseline). No key holds a line number, which moves with every edit above it.
"""

from __future__ import annotations

import re

from msgspec import Struct

from compilediag.receipt.schema.compiles import EventCause
from compilediag.receipt.schema.receipt import Receipt

COUNTS = (
    "frames",
    "compiles",
    "recompiles",
    "graphs",
    "graph_breaks",
    "eager_fallbacks",
    "recompile_limit_hits",
)
"""Fields of `receipt.compile` that are compared, in the order in which they are shown."""

_RESUMED = "torch_dynamo_resume_in_"


class CountChange(Struct, frozen=True):
    """One count of both receipts."""

    name: str
    before: int
    after: int

    @property
    def change(self) -> int:
        """How many more (negative: fewer) after."""
        return self.after - self.before


class CauseKey(Struct, frozen=True, order=True):
    """What makes two causes the same: never the line, which moves with every edit above it."""

    rule: str
    variable: str
    file: str | None
    function: str | None


class BreakKey(Struct, frozen=True, order=True):
    """What makes two graph-break sites the same."""

    file: str
    function: str
    category: str | None
    reason: str


class FrameKey(Struct, frozen=True, order=True):
    """A frame over all its compiles, epochs and processes."""

    file: str
    function: str


class FrameTotal(Struct, frozen=True):
    """Compiles of a frame, and whether torch ran it eager."""

    compiles: int
    ran_eager: bool
    line: int
    """First line of the function."""
    eager_reason: str | None = None


def counts(receipt: Receipt) -> dict[str, int]:
    """Every count by its name."""
    return {name: getattr(receipt.compile, name) for name in COUNTS}


def function_key(name: str) -> str:
    """A function without a line number: torch names what follows a graph break after its line."""
    if not name.startswith(_RESUMED):
        return name
    found = re.fullmatch(rf"(?:{_RESUMED})+(.+?)(?:_at_[0-9]+)+", name)
    return name if found is None else f"{found[1]} (resumed)"


def cause_key(cause: EventCause) -> CauseKey:
    """What makes this cause the same in another run."""
    function = function_key(cause.function) if cause.function is not None else None
    return CauseKey(cause.rule or cause.family, cause.variable, cause.file, function)


def causes(receipt: Receipt) -> dict[CauseKey, list[EventCause]]:
    """Causes by what makes them the same: one for each recompile they had a part in."""
    found: dict[CauseKey, list[EventCause]] = {}
    for event in receipt.compile.events:
        keys: set[CauseKey] = set()
        for cause in event.causes:
            key = cause_key(cause)
            if key not in keys:
                keys.add(key)
                found.setdefault(key, []).append(cause)
    return found


def breaks(receipt: Receipt) -> dict[BreakKey, list[int]]:
    """Lines of the graph-break sites, by what makes sites the same."""
    found: dict[BreakKey, list[int]] = {}
    for item in receipt.compile.breaks:
        key = BreakKey(item.file, function_key(item.function), item.category, item.reason)
        found.setdefault(key, []).append(item.line)
    return found


def frames(receipt: Receipt) -> dict[FrameKey, FrameTotal]:
    """Totals by file and function."""
    totals: dict[FrameKey, FrameTotal] = {}
    for item in receipt.compile.frames_detail:
        key = FrameKey(item.frame.file, function_key(item.frame.function))
        known = totals.get(key)
        totals[key] = FrameTotal(
            compiles=item.compiles + (known.compiles if known else 0),
            ran_eager=item.ran_eager or (known is not None and known.ran_eager),
            line=item.frame.line,
            eager_reason=item.eager_reason or (known.eager_reason if known else None),
        )
    return totals
