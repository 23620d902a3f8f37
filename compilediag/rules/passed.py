"""What a call passes for an argument: a tensor in one layout or dtype, a copy where two arguments
are sometimes one tensor, a tensor in place of a Python number, a list in place of a generator.

A function that writes into its argument would write into the copy: it is looked at in each trial,
and such a change counts as not applied.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from compilediag.receipt.schema.compiles import EnteredAt
from compilediag.rules.case import PARAMETER, Case, other_calls, parse_expression
from compilediag.rules.changes import Change, Edit
from compilediag_harness.wire import ArgumentChange


@dataclass(frozen=True, slots=True)
class OtherArgument:
    """Something else that is passed for an argument."""

    argument: str
    action: str
    """As `ArgumentChange` has it."""
    code: str
    """With `_` for the argument."""
    risk: str


def argument_of(source: str) -> str | None:
    """The argument that a source is, as a call passes it: "x", "args[0]"; None for a part of one.
    A check of identity names "x" for `L['x']`."""
    found = PARAMETER.fullmatch(source) or re.fullmatch(r"(\w+)((?:\[\d+\])?)", source)
    if found is None or found[1] == "self" or not re.fullmatch(r"(?:\[\d+\])?", found[2]):
        return None
    return f"{found[1]}{found[2]}"


def changes_at_calls(case: Case, passed: OtherArgument) -> Iterator[Change]:
    """At every call of the function, from outside, and as edits of the calls."""
    function = case.function
    if function is None:
        return
    calls = {
        (event.entered_at.file, event.entered_at.line, event.entered_at.text): event.entered_at
        for event in case.compiles_of_frames
        if event.entered_at is not None
    }
    unknown = any(event.entered_at is None for event in case.compiles_of_frames)
    places = [_call_of(call, passed) for call in calls.values()]
    known = [place for place in places if place is not None]
    also = other_calls(max(len(calls) - 1, 0))
    shown = known[0].shown if known else passed.code.replace("_", passed.argument, 1)
    yield Change(
        "call",
        f"{shown}  # at the call{case.call_place if not known else known[0].place}{also}",
        passed.risk,
        arguments=(ArgumentChange(function, passed.argument, passed.action),),
    )
    edits = tuple(place.edit for place in known)
    if not known or unknown or len(known) != len(places) or not _are_own(case, edits):
        return
    is_tensor = not passed.action.startswith("tensor")
    unwritten = (ArgumentChange(function, passed.argument, "unwritten"),) if is_tensor else ()
    yield Change(
        "source",
        f"{known[0].edit.file}:{known[0].edit.line}: {known[0].shown}{also}",
        passed.risk,
        edits=tuple(dict.fromkeys(edits)),
        arguments=unwritten,
    )


def edited_call(case: Case, passed: OtherArgument) -> Iterator[Change]:
    """An edit of the one call that the finding is about: no compile tells of others."""
    called = case.finding.entered_at
    place = _call_of(called, passed) if called is not None else None
    if place is not None and case.is_own(place.edit.file):
        line = f"{place.edit.file}:{place.edit.line}: {place.shown}"
        yield Change("source", line, passed.risk, edits=(place.edit,))


def _are_own(case: Case, edits: tuple[Edit, ...]) -> bool:
    return all(case.is_own(edit.file) for edit in edits)


@dataclass(frozen=True, slots=True)
class _Call:
    edit: Edit
    shown: str
    place: str


def _call_of(call: EnteredAt, passed: OtherArgument) -> _Call | None:
    """The call with something else passed; None where its text does not show the argument."""
    whole = parse_expression(call.text)
    if not isinstance(whole, ast.Call):
        return None
    given: list[ast.expr | ast.keyword] = [*whole.args, *whole.keywords]
    given.sort(key=lambda item: (item.lineno, item.col_offset))
    index = _index_in(given, call, passed.argument)
    if index is None:
        return None
    place = given[index]
    expression = place.value if isinstance(place, ast.keyword) else place
    text = ast.unparse(whole)
    made = ast.unparse(_Filled(expression).visit(ast.parse(passed.code, mode="eval").body))
    replaced = ast.parse(made, mode="eval").body
    if isinstance(place, ast.keyword):
        place.value = replaced
    else:
        whole.args[next(n for n, item in enumerate(whole.args) if item is place)] = replaced
    edit = Edit(call.file, call.line, "argument", (text, str(index), passed.code))
    return _Call(edit, ast.unparse(whole), f", {call.file}:{call.line}")


def _index_in(given: list[ast.expr | ast.keyword], call: EnteredAt, argument: str) -> int | None:
    """Which of the arguments of a call is passed for a parameter."""
    texts = [(item.parameter, parse_expression(item.expression)) for item in call.arguments]
    wanted = [(name, ast.unparse(tree)) for name, tree in texts if tree is not None]
    expression = dict(wanted).get(argument)
    if expression is None:
        return None
    for index, item in enumerate(given):
        if isinstance(item, ast.keyword) and item.arg == argument:
            return index
    same = [
        index
        for index, item in enumerate(given)
        if not isinstance(item, (ast.keyword, ast.Starred)) and ast.unparse(item) == expression
    ]
    order = [name for name, text in wanted if text == expression]
    nth = order.index(argument)
    return same[nth] if len(same) == len(order) else None


class _Filled(ast.NodeTransformer):
    def __init__(self, value: ast.expr) -> None:
        self._value = value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """The argument in place of the placeholder."""
        return self._value if node.id == "_" else node
