"""The result of a gate, as values: made by `judge`, shown by the views of `views/gate/`."""

from __future__ import annotations

import hashlib
from typing import Literal

from msgspec import Struct

from compilediag.compare.changes import CountChange
from compilediag.receipt.schema.compiles import EnteredAt

Kind = Literal[
    "limit",  # --fail-on: a count over its limit
    "count",  # a count over the baseline's that no item below explains
    "cause",  # a cause that the baseline does not have, or that is met more often
    "break",  # a graph-break site
    "fallback",  # a frame that torch runs eager
    "frame",  # a frame that is compiled more often without a recompile (a new epoch, a new frame)
    "recording",  # CUDA-graph recordings
    "unproved",  # a finding for which no change is proved, where that is demanded
    "not_judged",  # blind, torn, another lane, no lane: cannot be judged, which is no pass
]


class Item(Struct, frozen=True):
    """One reason why a gate fails; or one thing that is better, or that is allowed."""

    kind: Kind
    rule: str
    """A code of docs/rules where there is one (CD103), else the name of the count or the kind."""
    message: str
    """One sentence: variable, guard, steps. Text of the target, not yet escaped."""
    before: int | None = None
    """How often, in the baseline; the limit, for a limit. None: there is nothing to compare."""
    after: int | None = None
    """How often, in the receipt."""
    file: str | None = None
    """Relative to the working directory of the run where it lies below it."""
    line: int | None = None
    function: str | None = None
    variable: str | None = None
    guard: str | None = None
    """The guard, with what it expected and what it met."""
    fix: str | None = None
    """What to change."""
    cost_s: float | None = None
    """Seconds it cost in this run; for information."""
    finding: str | None = None
    """The finding of the receipt with the details: `compilediag explain 1` for "F1"."""
    reason: str | None = None
    """Why it is allowed, for what the baseline has."""
    detail: str | None = None
    """What distinguishes two items of one function without a variable: torch's reason for a graph
    break."""
    call: EnteredAt | None = None
    """The call of the program's own that led there, where that place is in a library or in torch:
    the line to look at first. It is no part of what the item is."""
    proved: str | None = None
    """The change that `compilediag fix` proved for the finding, and what it does."""

    @property
    def fingerprint(self) -> str:
        """The same for the same fault after lines have moved: 32 hexadecimal digits."""
        parts = [self.kind, self.rule, self.file or "", self.function or "", self.variable or ""]
        parts += [self.detail] if self.detail else []
        return hashlib.sha256("\x00".join(parts).encode("utf-8", "replace")).hexdigest()[:32]


class BaselineResult(Struct, frozen=True):
    """How a run differs from its baseline."""

    failures: tuple[Item, ...] = ()
    improvements: tuple[Item, ...] = ()
    known: tuple[Item, ...] = ()
    notices: tuple[str, ...] = ()


class Judgement(Struct, frozen=True):
    """The result of a gate for one receipt."""

    lane: str
    receipt_id: str
    verdict: str | None
    """The receipt's own: clean, findings or blind."""
    baseline: str | None
    """The baseline's file as it was given; None where only limits were given."""
    limits: tuple[str, ...]
    """The limits that were given, as they were written."""
    counts: tuple[CountChange, ...]
    """Every count: `before` is the baseline's, or the receipt's own without a baseline."""
    failures: tuple[Item, ...]
    """Most important first: the order in which formats with a limit cut."""
    improvements: tuple[Item, ...] = ()
    known: tuple[Item, ...] = ()
    """Causes, breaks and fallbacks that are there and that the baseline allows."""
    notices: tuple[str, ...] = ()
    """For information: another torch, an allowed cause without a reason, no timings."""
    strict: bool = False
    """Improvements fail as well, until the baseline is updated."""
    require_proved_fix: bool = False
    """Each finding of at least `warning` needs a proved change."""

    @property
    def passed(self) -> bool:
        """Whether nothing fails."""
        return not self.failures and not (self.strict and self.improvements)

    @property
    def judged(self) -> bool:
        """Whether everything could be judged."""
        return all(item.kind != "not_judged" for item in self.failures)
