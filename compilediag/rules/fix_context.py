"""A finding with what changes are made from (`FixContext`): the calls of the program's own by which
its function was compiled, and something else that these pass for an argument."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from packaging.version import InvalidVersion, Version

from compilediag.receipt.schema.compiles import CompileEvent, FindingRecord, UserCallRecord
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.changes import Edit, ProgramChange, parse_expression
from compilediag_harness.wire import ArgumentChange, Location, find_resumed_function

# Invariant: no blank, quote, `$`, backslash or `!` in an item of the path: sources are put between
# double quotes of a shell as they are (`format_export`).
PARAMETER = re.compile(r"L\['(?!___)([A-Za-z_]\w*)'\]((?:\[[^\s$`\\\"!]+\]|\.\w+)*)")
"""A source below a parameter: its name, none of Dynamo's own, and the path below it."""

FIRST_WITH_UNBACKED = Version("2.13")
"""TORCH_COMPILE_UNBACKED_SOURCES, `ignore_logging_functions`, overrides in the environment, and
keywords of `torch.compile` about recompiles."""


@dataclass(frozen=True)
class FixContext:
    """A finding of a receipt, and the run that it is of: what changes are proposed from."""

    finding: FindingRecord
    receipt: Receipt
    version: Version
    """Of torch."""

    @cached_property
    def evidence(self) -> GuardEvidence:
        """The evidence, read as that of a finding about guards."""
        return GuardEvidence.parse(self.finding.evidence)

    @property
    def source(self) -> str:
        """The guarded variable as guards name it; empty where there is none."""
        return self.evidence.source or ""

    @property
    def kind(self) -> str:
        """The kind among those that its rule distinguishes; empty where there is none."""
        return self.evidence.kind or ""

    @property
    def guard(self) -> str:
        """The text of the guard; empty where there is none."""
        return self.evidence.guard or ""

    @property
    def values(self) -> list[tuple[str, str]]:
        """Each change that was seen, as (before, after)."""
        seen = self.evidence.values or [(self.evidence.expected, self.evidence.actual)]
        return [(before, after) for before, after in seen if before and after]

    @property
    def seen(self) -> list[str]:
        """Every value that was seen."""
        return [value for pair in self.values for value in pair]

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
            if find_resumed_function(event.frame.function or "") is None
        }
        return [event for event in self.receipt.compile.events if event.frame in frames]

    @cached_property
    def function(self) -> Location | None:
        """The compiled function whose recompiles the finding is about, where that is what the
        program calls: marks are put on its arguments."""
        frames = {(event.frame.file, event.frame.line) for event in self.compiles}
        called = [
            invocation
            for invocation in self.receipt.invocations
            if (invocation.file, invocation.line) in frames
        ]
        if len(frames) != 1 or not called:
            return None
        return Location(called[0].file or "", called[0].line or 0, called[0].name)

    def is_own(self, file: str | None) -> bool:
        """True where a file is the program's own: others are never edited."""
        return file in self.receipt.header.provenance.source_sha256

    @property
    def call_place(self) -> str:
        """The place of the program's own call, for the end of a line; empty if it is not known."""
        call = self.finding.entered_at
        return f", {call.file}:{call.line}" if call is not None else ""


def make_context(finding: FindingRecord, receipt: Receipt) -> FixContext | None:
    """Make the context of a finding; None where the version of torch is not known: what it can do
    is not, either."""
    version = parse_torch_version(receipt.environment.torch or "")
    return None if version is None else FixContext(finding, receipt, version)


def parse_torch_version(text: str) -> Version | None:
    """Parse a version of torch without what a build adds to it; None where the text is none."""
    try:
        return Version(Version(text).base_version)
    except InvalidVersion:
        return None


# --- the calls of the program -------------------------------------------------------------------

ArgumentKey = int | str
"""The position or keyword of an argument of a call."""


@dataclass(frozen=True)
class SourceCall:
    """A call of the program by which the function was compiled."""

    place: UserCallRecord
    tree: ast.Call
    arguments: Mapping[ArgumentKey, str]
    """The text of each argument, but of those with a star."""
    parameters: Mapping[str, str]
    """The expression that is passed for each parameter, in their order."""

    @classmethod
    def parse(cls, place: UserCallRecord | None) -> SourceCall | None:
        """Parse the call at a place; None where it is not known, or its text is no whole call."""
        tree = parse_expression(place.text) if place is not None else None
        if place is None or not isinstance(tree, ast.Call):
            return None
        plain = [(n, node) for n, node in enumerate(tree.args) if not isinstance(node, ast.Starred)]
        arguments: dict[ArgumentKey, str] = {at: ast.unparse(node) for at, node in plain}
        arguments |= {node.arg: ast.unparse(node.value) for node in tree.keywords if node.arg}
        parameters = {
            argument.parameter: ast.unparse(value)
            for argument in place.arguments
            if (value := parse_expression(argument.expression)) is not None
        }
        return cls(place, tree, arguments, parameters)

    def find_key(self, name: str) -> ArgumentKey | None:
        """Find the position or keyword by which the call passes a parameter; of several that get
        the same expression, each in turn."""
        if name in self.arguments:
            return name
        expression = self.parameters.get(name)
        same = [
            key
            for key, text in self.arguments.items()
            if text == expression and key not in self.parameters
        ]
        order = [
            parameter
            for parameter, text in self.parameters.items()
            if text == expression and parameter not in self.arguments
        ]
        return same[order.index(name)] if same and len(same) == len(order) else None

    def make_argument_edit(self, key: ArgumentKey, code: str) -> Edit:
        """Make the edit that passes something else for an argument: `code`, with `_` for the
        argument as it is."""
        given = [*self.tree.args, *self.tree.keywords]
        given.sort(key=lambda node: (node.lineno, node.col_offset))
        wanted = self.tree.args[key] if isinstance(key, int) else _find_keyword(self.tree, key)
        made = (ast.unparse(self.tree), str(given.index(wanted)), code)
        return Edit(self.place.file, self.place.line, "argument", made)

    def format_with_argument(self, key: ArgumentKey, code: str) -> str:
        """Format the call with something else passed for an argument."""
        call = copy.deepcopy(self.tree)
        text = re.sub(r"\b_\b", lambda _: f"({self.arguments[key]})", code)
        value = ast.parse(text, mode="eval").body
        if isinstance(key, int):
            call.args[key] = value
        else:
            _find_keyword(call, key).value = value
        return ast.unparse(call)


def _find_keyword(call: ast.Call, name: str) -> ast.keyword:
    return next(keyword for keyword in call.keywords if keyword.arg == name)


def edit_calls(edits: Sequence[Edit], shown: str, risk: str) -> ProgramChange:
    """Edit every call: one change, whose line shows the first of them."""
    line = f"{edits[0].file}:{edits[0].line}: {shown}{_format_others(len(edits))}"
    return ProgramChange("source", line, risk, edits=tuple(dict.fromkeys(edits)))


def _format_others(calls: int) -> str:
    """Format the end of a line that shows the first of several calls."""
    return f" (and at {calls - 1} other call{'s' * (calls > 2)})" if calls > 1 else ""


# --- something else passed for an argument ------------------------------------------------------


def parse_argument(source: str) -> str | None:
    """Parse the argument a source is, as a call passes it: "x", "args[0]"; None for part of one."""
    match = PARAMETER.fullmatch(source)
    if match is None or match[1] == "self" or not re.fullmatch(r"(?:\[\d+\])?", match[2]):
        return None
    return f"{match[1]}{match[2]}"


def propose_call_changes(
    context: FixContext, argument: str, action: str, code: str, risk: str
) -> Iterator[ProgramChange]:
    """Propose something else for an argument (as `parse_argument` names it) at every call of the
    function: from outside (`action`: as `ArgumentChange` has it), and as edits of the calls
    (`code`: the same as an expression, with `_` for the argument)."""
    if context.function is None:
        return
    places = [event.entered_at for event in context.compiles_of_frames]
    known = {(place.file, place.line, place.text): place for place in places if place is not None}
    calls = [SourceCall.parse(place) for place in known.values()]
    pairs = [(call, key) for call in calls if call and (key := call.find_key(argument)) is not None]
    shown, at, also = code.replace("_", argument, 1), context.call_place, _format_others(len(calls))
    if pairs:
        call, key = pairs[0]
        shown = call.format_with_argument(key, code)
        at = f", {call.place.file}:{call.place.line}"
    given = (ArgumentChange(context.function, argument, action),)
    yield ProgramChange("call", f"{shown}  # at the call{at}{also}", risk, arguments=given)
    edits = [call.make_argument_edit(key, code) for call, key in pairs]
    if not edits or None in places or len(edits) < len(calls):
        return
    if all(context.is_own(edit.file) for edit in edits):
        unwritten = (ArgumentChange(context.function, argument, "unwritten"),)
        change = edit_calls(edits, shown, risk)
        yield change if action.startswith("tensor") else replace(change, arguments=unwritten)
