"""Causes of recompiles, and findings with their place, cost and fix."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from msgspec.structs import replace

from compilediag.diagnosis.codes import REGISTER
from compilediag.receipt.schema.compiles import (
    ChangedAt,
    CommonCauseRecord,
    FindingRecord,
    PassedArgument,
    Place,
    UserCallRecord,
    Writer,
)
from compilediag.receipt.schema.record import make_record
from compilediag.timeline.frames import BreakLine
from compilediag.timeline.ownership import classify_ownership
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Location, UserCall, ValueChange, ValueUse

Confidence = Literal["exact", "text", "static"]
Evidence = Literal["witnessed", "source"]
"""How a writer is known: it was seen to change the value, or its source says that it can."""


class CauseId(NamedTuple):
    """The identity of a cause over all recompiles of a run: never the line of the guard, which a
    function may have several of."""

    rule: str
    variable: str
    file: str
    function: str
    kind: str | None
    planned: bool
    """Sizes that a warm-up compiled for: intended, and no fault."""
    begins: int = 0
    """The first line of the function, of several of one name, as far as they were compiled."""


def select_writers(writers: tuple[Location, ...], *, traced: bool) -> tuple[Location, ...]:
    """Select the writers to name. By the source alone several methods of packages may write a
    value, most of which never ran: one is named only where there is no other candidate, and one of
    torch, such as `load_state_dict`, never."""
    if traced:
        return writers
    if len(writers) < 2:
        return tuple(writer for writer in writers if classify_ownership(writer.file) != "torch")
    return tuple(writer for writer in writers if classify_ownership(writer.file) == "user")


def is_write_traced(changed: ValueChange | None, writers: tuple[Location, ...]) -> bool:
    """True if the line that changed the value is known. Inside a compiled call no line is followed:
    there it is one of those that the source has."""
    if changed is None or not changed.stack:
        return False
    return not changed.in_call or changed.stack[0] in writers


@dataclass(frozen=True, slots=True)
class Cause:
    """One false guard that had to be true to avoid a recompile, named in the user's terms."""

    rule: str
    """The code of its family, "CD103"."""
    kind: str | None = None
    """Refinement within the family, such as "zero_one" of CD118 or "grad_mode" of CD111."""
    source: str = ""
    variable: str = ""
    """As the user would write it: "pos.pe", "capture", "x"."""
    guard: str = ""
    expected: str | None = None
    actual: str | None = None
    location: Location | None = None
    """The line to blame: the user's line of the guard, never the alias path."""
    primary: bool = True
    """Belongs to the nearest cache entry and is first in the order of decision."""
    writers: tuple[Location, ...] = ()
    confidence: Confidence = "exact"
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
    uses: tuple[ValueUse, ...] | None = None
    """What the functions that read the value do with it; None where that is not known."""
    changed: ValueChange | None = None
    """How the value was seen to change; then `writers` is what was seen, where that has a line."""
    changed_by: tuple[UserCall, ...] = ()
    """The program's lines that probably did: they call, by its name, a function that writes it."""

    @property
    def family(self) -> str:
        """The slug of the code with underscores, "lazy_buffer"; keys of `recompiles_by_family`."""
        return REGISTER[self.rule].family

    @property
    def value(self) -> str:
        """The variable with its present value, for use in a sentence."""
        return f"{self.variable}={self.actual}" if self.actual is not None else self.variable

    @property
    def is_set_within(self) -> bool:
        """True where the function that reads the value writes it too, within the compiled call."""
        if self.changed is not None:
            return self.changed.in_call
        if self.location is None:
            return False
        own = self.location.file, self.location.function.rpartition(".")[2]
        return own in ((at.file, at.function.rpartition(".")[2]) for at in self.writers)

    @property
    def write_traced(self) -> bool:
        """The writer was seen, not found in the source."""
        return is_write_traced(self.changed, self.writers)


class CommonCause(CommonCauseRecord, frozen=True, kw_only=True):
    """The line of the program that changed all values of a finding: seen ("witnessed"), or
    concluded from the names of the functions that write the values ("probable"). `text` is that of
    the call where it is known, empty where it is not."""

    lines: int = 1
    """How many lines it may have been; this is one of them."""


class Finding(FindingRecord, frozen=True, kw_only=True):
    """A finding as its rule makes it: what the receipt stores, and what it explains. `diagnose`
    numbers them F1, F2..."""

    id: str = ""
    about: tuple[CauseId | BreakLine, ...] = ()
    """The causes of recompiles and the graph breaks that it explains."""


class HasCaller(Protocol):
    """A thing that knows where it was called from: a compile, a recompile, a break site, a frame, a
    recording. The names are those of events in journals."""

    @property
    def entered_at(self) -> UserCall | None: ...
    @property
    def entered_from(self) -> str: ...


def make_place(where: Location | Place | None) -> Place | None:
    """Make the place of a line of code as a receipt names it; None without one."""
    return None if where is None else make_record(Place, where)


def make_call_record(call: UserCall | None) -> UserCallRecord | None:
    """Make the record of the call of the program's own, with its arguments; None without a call."""
    if call is None:
        return None
    args = tuple(PassedArgument(parameter=name, expression=text) for name, text in call.arguments)
    return make_record(UserCallRecord, call, arguments=args)


def add_caller(finding: Finding, way: HasCaller) -> Finding:
    """Add to a finding the call of the program's own that led to it."""
    return replace(
        finding, entered_at=make_call_record(way.entered_at), entered_from=way.entered_from or None
    )


def make_changed_at(change: ValueChange | None) -> ChangedAt | None:
    """Make the record of how a value was seen to change; None where no line is known."""
    if change is None or not change.stack:
        return None
    first = change.stack[0]
    return make_record(ChangedAt, change, file=first.file, line=first.line, function=first.function)


def make_writers(cause: Cause) -> tuple[Writer, ...]:
    """Make the records of the functions that write the value of a cause."""
    traced = cause.write_traced
    return tuple(
        make_record(Writer, writer, evidence="witnessed" if traced else "source")
        for writer in select_writers(cause.writers, traced=traced)
    )


Rule = Callable[[Timeline], Iterable[Finding]]
"""A rule reads a Timeline and yields findings; it opens no file, reads no clock, needs no torch."""
