"""An attribute that the compiled code itself gives its value, in its first call: it has that value
before the call."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.rules.case import PLAIN, Case, calls_of, edit_calls
from compilediag.rules.changes import Change, Edit

_OF_SELF = re.compile(r"L\['self'\]((?:\.\w+|\['\w+'\])+)")
_FROM_THE_START = (
    "it has this value from the first call on, even where other code would set it differently"
)
_REGISTERED = re.compile(r"\._(?:modules|buffers|parameters)\['(\w+)'\]")


def filled_candidates(case: Case) -> Iterator[Change]:
    """An assignment before each call that compiled."""
    found = _OF_SELF.fullmatch(case.source)
    values = set(case.values)
    writers = GuardEvidence.of(case.finding.evidence).writers
    if case.finding.rule != "CD104" or found is None or len(values) != 1 or not writers:
        return
    ((_, value),) = values
    path = _REGISTERED.sub(_member, found[1])
    owners = [_owner(call.tree, case) for call in calls_of(case)]
    if not _is_literal(value) or not owners or None in owners:
        return
    edits = [
        Edit(call.place.file, call.place.line, "before", (f"{owner}{path} = {value}",))
        for call, owner in zip(calls_of(case), owners, strict=True)
    ]
    yield edit_calls(edits, f"{edits[0].code[0]}  # before the call", _FROM_THE_START)


def _member(found: re.Match[str]) -> str:
    """An item of nn.ModuleList and nn.Sequential has a number for its name."""
    return f"[{found[1]}]" if found[1].isdecimal() else f".{found[1]}"


def _owner(call: ast.Call, case: Case) -> str | None:
    """The expression for what the guard calls `self`: what is called, or what has the method."""
    name = case.function.function.rpartition(".")[2] if case.function is not None else ""
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr == name:
        function = function.value
    text = ast.unparse(function)
    return text if PLAIN.fullmatch(text) else None


def _is_literal(text: str) -> bool:
    try:
        value: object = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return False
    return value is None or isinstance(value, (bool, int, float, str))
