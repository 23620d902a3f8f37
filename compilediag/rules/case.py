"""A finding of a receipt with what changes are made from, and the calls of the program's own by
which its function was compiled."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from packaging.version import InvalidVersion, Version

from compilediag.receipt.schema.compiles import CompileEvent, EnteredAt, FindingRecord
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.changes import Change, Edit
from compilediag.rules.facts import is_number
from compilediag_harness.wire import Location, resumed_function

_INT = re.compile(r"-?\d+")
PARAMETER = re.compile(r"L\['([A-Za-z_]\w*)'\]((?:\[[^\s$`\\\"!]+\]|\.\w+)*)")
"""A source below a parameter: its name, and the path below it."""

FIRST_WITH_UNBACKED = Version("2.13")
"""TORCH_COMPILE_UNBACKED_SOURCES, `ignore_logging_functions`, overrides in the environment, and
keywords of `torch.compile` about recompiles."""


@dataclass(frozen=True)
class Case:
    """A finding, and the run that it is of."""

    finding: FindingRecord
    receipt: Receipt
    version: Version
    """Of torch."""

    @property
    def source(self) -> str:
        """The guarded variable as guards name it; empty where there is none."""
        return GuardEvidence.of(self.finding.evidence).source or ""

    @property
    def kind(self) -> str:
        """Which of its rule's cases it is."""
        return GuardEvidence.of(self.finding.evidence).kind or ""

    @property
    def guard(self) -> str:
        """The text of the guard; empty where there is none."""
        return GuardEvidence.of(self.finding.evidence).guard or ""

    @property
    def values(self) -> list[tuple[str, str]]:
        """Each change that was seen, as (before, after)."""
        guard = GuardEvidence.of(self.finding.evidence)
        seen = guard.values or [(guard.expected, guard.actual)]
        return [(before, after) for before, after in seen if before and after]

    @property
    def are_integers(self) -> bool:
        """Whether every value that was seen is an int."""
        return self.are_numbers and all(
            _INT.fullmatch(each) for pair in self.values for each in pair
        )

    @property
    def are_numbers(self) -> bool:
        """Whether every value that was seen is an int or a float."""
        return bool(self.values) and all(is_number(each) for pair in self.values for each in pair)

    @property
    def compiles(self) -> list[CompileEvent]:
        """The compiles that the finding caused."""
        return [
            event
            for event in self.receipt.compile.events
            if any(cause.finding == self.finding.id for cause in event.causes)
        ]

    @property
    def compiles_of_frames(self) -> list[CompileEvent]:
        """Every compile of the frames that the finding recompiled, but for what goes on behind a
        graph break: no call of the program's enters it."""
        frames = {
            event.frame
            for event in self.compiles
            if resumed_function(event.frame.function or "") is None
        }
        return [event for event in self.receipt.compile.events if event.frame in frames]

    @cached_property
    def function(self) -> Location | None:
        """The compiled function whose recompiles the finding is about, where that is what the
        program calls: marks are put on its arguments."""
        frames = {(event.frame.file, event.frame.line) for event in self.compiles}
        called = [item for item in self.receipt.invocations if (item.file, item.line) in frames]
        if len(frames) != 1 or not called:
            return None
        return Location(called[0].file or "", called[0].line or 0, called[0].name)

    @property
    def has_compile_keywords(self) -> bool:
        """Whether `torch.compile` takes `recompile_limit` and `isolate_recompiles`."""
        return self.version >= FIRST_WITH_UNBACKED

    def is_own(self, file: str | None) -> bool:
        """Whether a file is the program's own: others are never edited."""
        return file in self.receipt.header.provenance.source_sha256

    @property
    def call_place(self) -> str:
        """Where the program's own call is, for the end of a line; empty where it is not known."""
        entered = self.finding.entered_at
        return f", {entered.file}:{entered.line}" if entered is not None else ""


def case_of(finding: FindingRecord, receipt: Receipt) -> Case | None:
    """None where the version of torch is not known: what it can do is not, either."""
    try:
        version = Version(Version(receipt.environment.torch or "").base_version)
    except InvalidVersion:
        return None
    return Case(finding, receipt, version)


PLAIN = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[(?:\w+|'[^']*'|\"[^\"]*\")\])*")
"""Read twice, it is the same object, and nothing else happens."""

Key = int | str
"""Of an argument of a call: its position or keyword."""


@dataclass(frozen=True)
class SourceCall:
    """A call of the program by which the function was compiled."""

    place: EnteredAt
    tree: ast.Call
    arguments: Mapping[Key, str]
    parameters: Mapping[str, str]

    def key_of(self, name: str) -> Key | None:
        """How it passes a parameter."""
        if name in self.arguments:
            return name
        expression = self.parameters.get(name)
        found = [key for key, text in self.arguments.items() if text == expression]
        return found[0] if len(found) == 1 else None


def calls_of(case: Case) -> list[SourceCall]:
    """Every one, once each; none where one is not known, or not the program's own."""
    found: dict[tuple[str, int, str], SourceCall] = {}
    for event in case.compiles_of_frames:
        place = event.entered_at
        tree = parse_expression(place.text) if place is not None else None
        if place is None or not isinstance(tree, ast.Call) or not case.is_own(place.file):
            return []
        if not place.arguments or any(isinstance(each, ast.Starred) for each in tree.args):
            return []
        arguments: dict[Key, str] = {at: ast.unparse(each) for at, each in enumerate(tree.args)}
        arguments |= {each.arg: ast.unparse(each.value) for each in tree.keywords if each.arg}
        parameters = {
            item.parameter: ast.unparse(value)
            for item in place.arguments
            if (value := parse_expression(item.expression)) is not None
        }
        found[place.file, place.line, place.text] = SourceCall(place, tree, arguments, parameters)
    return [*found.values()]


def edit_calls(edits: Sequence[Edit], shown: str, risk: str) -> Change:
    """A change of every call, of which the first is shown."""
    first, also = edits[0], other_calls(len(edits) - 1)
    line = f"{first.file}:{first.line}: {shown}{also}"
    return Change("source", line, risk, edits=tuple(dict.fromkeys(edits)))


def other_calls(number: int) -> str:
    """The end of a line that shows one of several calls."""
    return f" (and at {number} other call{'s' * (number > 1)})" * bool(number)


def parse_expression(text: str) -> ast.expr | None:
    """The expression in a text; None where it is none, or more."""
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None
