"""Causes of recompiles, and findings with their place, cost and fix."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from compilediag.receipt.schema.compiles import CandidateRecord, PartRecord
from compilediag.timeline.breaks import BreakLine
from compilediag.timeline.ownership import Ownership, ownership_of
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Location, UserCall, ValueChange

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
"""The worst first."""
Confidence = Literal["exact", "text", "static"]
Evidence = Literal["witnessed", "source"]
"""How a writer is known: it was seen to change the value, or its source says that it can."""


class CauseId(NamedTuple):
    """What is one cause over all recompiles of a run: never the line of the guard, which a function
    may have several of."""

    rule: str
    variable: str
    file: str
    function: str
    kind: str | None
    planned: bool
    """Sizes that a warm-up compiled for: intended, and no fault."""


def shown_writers(writers: tuple[Location, ...], *, witnessed: bool) -> tuple[Location, ...]:
    """The writers to name. By the source alone several methods of packages may write a value, most
    of which never ran: one is named only where there is no other candidate."""
    if witnessed or len(writers) < 2:
        return writers
    return tuple(item for item in writers if ownership_of(item.file) == "user")


def writer_seen(changed: ValueChange | None, writers: tuple[Location, ...]) -> bool:
    """Whether the line that changed the value is known. Inside a compiled call no line is followed:
    there it is one of those that the source has."""
    if changed is None or not changed.stack:
        return False
    return not changed.in_call or changed.stack[0] in writers


@dataclass(frozen=True, slots=True)
class Cause:
    """One false guard that had to be true to avoid a recompile, named in the user's terms."""

    rule: str
    """The code of its family, "CD103"."""
    family: str
    """The slug of the code with underscores, "lazy_buffer"; keys of `recompiles_by_family`."""
    kind: str | None
    """Refinement within the family, such as "zero_one" of CD118 or "grad_mode" of CD111."""
    source: str
    variable: str
    """As the user would write it: "pos.pe", "capture", "x"."""
    guard: str
    expected: str | None
    actual: str | None
    location: Location | None
    """The line to blame: the user's line of the guard, never the alias path."""
    primary: bool
    """Belongs to the nearest cache entry and is first in the order of decision."""
    writers: tuple[Location, ...] = ()
    confidence: Confidence = "exact"
    line_text: str | None = None
    """The source text of `location`."""
    parts: tuple[Cause, ...] = ()
    """Of a combination: the values that are known alone."""
    novel: bool | None = None
    """No cache entry accepts the present value; False: one does, so that the value was compiled for
    before. None where that is not known."""
    own: UserCall | None = None
    """The program's own line that led to `location`, where that is a line of a library that was
    compiled with it."""
    branched_on: bool | None = None
    """A condition in the function of `location` reads the value; None where that is not known."""
    changed: ValueChange | None = None
    """How the value was seen to change; then `writers` is what was seen, where that has a line."""
    changed_by: tuple[UserCall, ...] = ()
    """The program's lines that probably did: they call, by its name, a function that writes it."""

    @property
    def value(self) -> str:
        """The variable with its present value, for use in a sentence."""
        return f"{self.variable}={self.actual}" if self.actual is not None else self.variable

    @property
    def witnessed(self) -> bool:
        """The writer was seen, not found in the source."""
        return writer_seen(self.changed, self.writers)


@dataclass(frozen=True, slots=True)
class Fix:
    """What to change: `summary` is one line in the imperative, `caveat` what it costs."""

    summary: str
    how: str
    """Documentation page, "docs/rules/CD103.md"."""
    caveat: str | None = None
    candidates: tuple[CandidateRecord, ...] = ()
    """Settings that need no edit, the best first."""


@dataclass(frozen=True, slots=True)
class Act:
    """The line of the program that changed all values of a finding."""

    evidence: Literal["witnessed", "probable"]
    """Seen; or concluded from the names of the functions that write the values."""
    file: str
    line: int
    function: str
    text: str
    """Its source text, of the call where that is known; empty where it is not."""
    lines: int = 1
    """How many lines it may have been; this is one of them."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know, with the place to change; `diagnose` numbers them F1, F2..."""

    rule: str
    slug: str
    """With hyphens: "lazy-buffer"."""
    severity: Severity
    confidence: Confidence
    family: str
    variable: str | None
    title: str
    """One short line for the screen: what happened, in plain words."""
    location: Location | None
    ownership: Ownership
    count: int
    steps: tuple[int, ...]
    cost_s: float | None
    """Seconds it cost; None when it was not measured."""
    fix: Fix
    evidence: dict[str, Any] = field(default_factory=dict[str, Any])
    """JSON-ready: compile_ids, expected, actual, writers, guard, reasons..."""
    also: tuple[str, ...] = ()
    """Codes of the symptoms merged into this finding."""
    about: tuple[CauseId | BreakLine, ...] = ()
    """The causes of recompiles and the graph breaks that it explains."""
    parts: tuple[PartRecord, ...] = ()
    """What else the same act changed."""
    act: Act | None = None
    """The line that did, where several values changed by one."""
    id: str = ""
    entered_at: UserCall | None = None
    """The innermost call in a file of the program's own that led there first; None where it is not
    known, or where the thread has no such call."""
    entered_from: str = ""
    """Where the thread has none: the thread."""
    changed: ValueChange | None = None
    """How the value was seen to change for the first recompile."""


class Entered(Protocol):
    """What knows how it was entered: a compile, a recompile, a break site, a frame, a recording."""

    @property
    def entered_at(self) -> UserCall | None: ...
    @property
    def entered_from(self) -> str: ...


Rule = Callable[[Timeline], Iterable[Finding]]
"""A rule reads a Timeline and yields findings; it opens no file, reads no clock, needs no torch."""
