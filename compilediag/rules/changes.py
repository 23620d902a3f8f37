"""A change that a trial applies to a run (`ProgramChange`), edits of source among it, with the line
that a user would write for it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

from compilediag.diagnosis.codes import TEMPORARY
from compilediag.errors import CompilediagError
from compilediag.receipt.schema.compiles import UserCallRecord
from compilediag.rules.environment_variables import format_export
from compilediag_harness.wire import (
    ArgumentChange,
    CompileOption,
    Location,
    PaddedFunction,
    SettingChange,
    TrialPlan,
)


class EditImpossible(CompilediagError):
    """An edit does not fit the source; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A change at one place of a file."""

    file: str
    line: int
    """Any line of the statement, counted from 1."""
    kind: str
    """The operator and what it does there (`fixes/rewrite.py`)."""
    code: tuple[str, ...] = ()
    """What the operator puts there or is about, as its docstring says. Statements may use the name
    `torch`."""


def parse_expression(text: str) -> ast.expr | None:
    """Parse an expression; None where the text is none."""
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return None


def parse_callee(call: UserCallRecord) -> ast.expr | None:
    """Parse what a call calls: `self.model` of "self.model(x)"; None where its text is no call."""
    tree = parse_expression(call.text)
    return tree.func if isinstance(tree, ast.Call) else None


def group_by_file(edits: Iterable[Edit]) -> dict[str, list[Edit]]:
    """Group edits by their file, each once."""
    edits_by_file: dict[str, list[Edit]] = {}
    for edit in dict.fromkeys(edits):
        edits_by_file.setdefault(edit.file, []).append(edit)
    return edits_by_file


ChangeKind = Literal["environment", "configuration", "call", "source", "program"]


@dataclass(frozen=True, slots=True)
class ProgramChange:
    """A change that may remove a finding."""

    kind: ChangeKind
    """How it is applied: a variable of the environment, an option of torch's configuration, or a
    change where the program compiles or calls, an edit of its files, or other sizes that it is
    called with."""
    line: str
    """What the user writes: a line for the shell, or of the program."""
    risk: str
    """What else it changes."""
    variables: tuple[tuple[str, str], ...] = ()
    settings: tuple[SettingChange, ...] = ()
    options: tuple[CompileOption, ...] = ()
    arguments: tuple[ArgumentChange, ...] = ()
    padded: tuple[PaddedFunction, ...] = ()
    edits: tuple[Edit, ...] = ()
    same_as: str = ""
    """Of changes that do the same in different ways, one is tried: the first that can be made."""
    left: int = field(default=0, compare=False)
    """Recompiles of the finding that may remain; the same change, whatever it leaves."""
    pads: tuple[Location, ...] = ()
    """Functions whose arguments are padded: that this harms nothing is a point of its own."""


def is_said_in(change: ProgramChange, advice: str) -> bool:
    """True for a change that advice says word for word."""
    statements = change.edits[0].code if change.edits else change.line.split("  # ")[0].split("; ")
    return all(statement in advice for statement in statements)


def build_trial_plan(changes: Iterable[ProgramChange]) -> TrialPlan:
    """Build the plan of a trial of the changes, without variables of the environment."""
    chosen = tuple(changes)
    return TrialPlan(
        settings=tuple(dict.fromkeys(part for change in chosen for part in change.settings)),
        compile_options=tuple(dict.fromkeys(part for change in chosen for part in change.options)),
        arguments=tuple(dict.fromkeys(part for change in chosen for part in change.arguments)),
        padded=tuple(dict.fromkeys(part for change in chosen for part in change.padded)),
        check_padding=any(change.pads for change in chosen),
    )


def locate_functions(change: ProgramChange, functions: Iterable[Location]) -> ProgramChange:
    """Locate the functions of a change in a run: a receipt names files as its reader finds them."""
    called = tuple(functions)
    arguments = tuple(
        replace(argument, function=_match_function(argument.function, called))
        for argument in change.arguments
    )
    padded = tuple(
        replace(padding, function=_match_function(padding.function, called))
        for padding in change.padded
    )
    return replace(change, arguments=arguments, padded=padded)


def _match_function(wanted: Location, called: Iterable[Location]) -> Location:
    for place in called:
        same = (place.line, place.function) == (wanted.line, wanted.function)
        if same and f"/{place.file}".endswith(f"/{wanted.file.lstrip('/')}"):
            return place
    return wanted


DYNAMO = "torch._dynamo.config"
SOURCES = "TORCH_COMPILE_DYNAMIC_SOURCES"
OVERRIDES = "TORCH_COMPILE_OVERRIDE_DYNAMO_CONFIGS"
_LISTABLE = re.compile(r"[LG]\[[^\s,:$`\\\"!]+")


def is_listable(source: str) -> bool:
    """True if a source can be in the list of dynamic ones: torch removes blanks from it, splits it
    at commas, and matches each entry, as a regular expression, with every other source. A name of
    Dynamo's own is another value's with every change of the code."""
    if f"'{TEMPORARY}" in source:
        return False
    with suppress(re.error):
        return _LISTABLE.fullmatch(source) is not None and bool(re.compile(source))
    return False


def make_variable_change(name: str, value: str, risk: str, left: int = 0) -> ProgramChange:
    """Make a change of a variable of the environment, a list most often."""
    same_as = f"{name} {','.join(sorted(value.split(',')))}"
    pairs = ((name, value),)
    line = format_export(name, value)
    return ProgramChange("environment", line, risk, pairs, left=left, same_as=same_as)
