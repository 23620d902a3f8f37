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
from compilediag.receipt.schema.evidence import BreakEvidence
from compilediag.rules.case import PARAMETER, Case, other_calls, parse_expression
from compilediag.rules.changes import Change, Edit
from compilediag.rules.facts import memory_format
from compilediag_harness.wire import ArgumentChange

_COPY = "a copy of the tensor per call, unless it already has this form"
_EACH_COPY = "a copy of the tensor per call"
_DENSE = "a dense tensor has memory for every element"
_LIST = "a list holds all items at once, and all are made before the call"
_TENSOR = "the function gets a tensor: a Python branch on it is no longer possible"

_OBJECT = r"\"?((?:L\['[A-Za-z_]\w*'\]|[A-Za-z_]\w*)(?:\[\d+\])?)\"?"
_SAME = re.compile(rf"(?:Duplicate tensors found: \[{_OBJECT}, {_OBJECT}\]|{_OBJECT} is {_OBJECT})")
_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?")
_BOUND = re.compile(r"L\['([A-Za-z_]\w*)'\](?![\[.\w'])")
_INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
_FLOATS = ("float64", "float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class _Passed:
    """Something else that is passed for an argument."""

    argument: str
    action: str
    """As `ArgumentChange` has it."""
    code: str
    """With `_` for the argument."""
    risk: str


def passed_candidates(case: Case) -> Iterator[Change]:
    """Each at every call of the function, from outside, and as edits of the calls."""
    for passed in _passed(case):
        yield from _changes(case, passed)
    for passed in _in_place_of_a_break(case):
        yield from _edited_call(case, passed)


def _passed(case: Case) -> Iterator[_Passed]:
    if case.finding.rule == "CD113":
        yield from _distinct(case)
    elif case.finding.rule in ("CD107", "CD118"):
        yield from _of_number(case)
    elif case.finding.rule == "CD106":
        yield from _of_tensor(case)
    elif case.finding.rule == "CD190":
        yield from _of_view(case)


def _in_place_of_a_break(case: Case) -> Iterator[_Passed]:
    """For each argument in turn: which one breaks the graph torch does not say."""
    called = case.finding.entered_at
    sparse = "sparse" in (BreakEvidence.of(case.finding.evidence).reason or "").lower()
    for item in called.arguments if called is not None else ():
        if case.finding.rule == "CD205":
            yield _Passed(item.parameter, "list", "list(_)", _LIST)
        elif case.finding.rule == "CD208" and sparse:
            yield _Passed(item.parameter, "to_dense", "_.to_dense()", _DENSE)


def _of_tensor(case: Case) -> Iterator[_Passed]:
    argument = _argument_of(case.source)
    if argument is None or not case.values:
        return
    if case.kind == "stride":
        layout = memory_format(case.values[0][0])
        if layout is not None:
            code = f"_.contiguous(memory_format=torch.{layout})"
            yield _Passed(argument, layout, code, _COPY)
        yield _Passed(argument, "contiguous", "_.contiguous()", _COPY)
    elif case.kind == "dtype":
        seen = {name.removeprefix("torch.") for pair in case.values for name in pair}
        for names in (_INTEGERS, _FLOATS):
            if seen <= {*names} and not seen >= {"bfloat16", "float16"}:
                widest = f"torch.{min(seen, key=names.index)}"
                wide = "torch.int64" if names is _INTEGERS else widest
                yield _Passed(argument, f"to({wide})", f"_.to({wide})", _COPY)


def _of_view(case: Case) -> Iterator[_Passed]:
    """A guard on the tensor behind a view, which a tensor of its own has not: a copy is no view.
    Which argument is the view torch does not say; where there is one argument, it is that."""
    behind = "'NoneType' object has no attribute 'size'"
    called = case.finding.entered_at
    if case.guard == behind and called is not None:
        names = {each.parameter for each in called.arguments}
        if len(names) == 1:
            yield _Passed(names.pop(), "clone", "_.clone()", _EACH_COPY)


def _distinct(case: Case) -> Iterator[_Passed]:
    """One of two arguments that are one tensor at times."""
    same = _SAME.search(case.guard)
    names = [_argument_of(name) for name in (same.groups() if same else ()) if name]
    if len(names) == 2 and names[1] is not None and names[0] is not None:
        yield _Passed(names[1], "clone", "_.clone()", _EACH_COPY)


def _of_number(case: Case) -> Iterator[_Passed]:
    """A number that is an argument itself: where it is a size, torch needs it as a number, and the
    trial fails."""
    if case.finding.rule == "CD118":
        guard = case.guard
        names = set(_BOUND.findall(guard))
        if len(names) == 1 and ".size()" not in guard and ".stride()" not in guard:
            yield _Passed(names.pop(), "tensor", "torch.tensor(_)", _TENSOR)
        return
    values = [value for pair in case.values for value in pair]
    numbers = [value for value in values if _NUMBER.fullmatch(value)]
    argument = _argument_of(case.source)
    if argument is None or not numbers or not _NUMBER.fullmatch(case.values[0][0]):
        return
    if all(value.lstrip("-").isdigit() for value in numbers):
        yield _Passed(argument, "tensor", "torch.tensor(_)", _TENSOR)
    else:
        code = "torch.tensor(_, dtype=torch.float64)"
        yield _Passed(argument, "tensor(torch.float64)", code, _TENSOR)


def _argument_of(source: str) -> str | None:
    """The argument that a source is, as a call passes it: "x", "args[0]"; None for a part of one.
    A check of identity names "x" for `L['x']`."""
    found = PARAMETER.fullmatch(source) or re.fullmatch(r"(\w+)((?:\[\d+\])?)", source)
    if found is None or found[1] == "self" or not re.fullmatch(r"(?:\[\d+\])?", found[2]):
        return None
    return f"{found[1]}{found[2]}"


def _changes(case: Case, passed: _Passed) -> Iterator[Change]:
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


def _edited_call(case: Case, passed: _Passed) -> Iterator[Change]:
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


def _call_of(call: EnteredAt, passed: _Passed) -> _Call | None:
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
