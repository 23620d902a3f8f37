"""The calls of the program's own by which a function was compiled, as their text shows them."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compilediag.receipt.schema.compiles import EnteredAt
from compilediag.rules.case import Case
from compilediag.rules.changes import Change
from compilediag.rules.edit import Edit

PLAIN = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[(?:\w+|'[^']*'|\"[^\"]*\")\])*")
"""Read twice, it is the same object, and nothing else happens."""

Key = int | str
"""Of an argument of a call: its position or keyword."""


@dataclass(frozen=True)
class Call:
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


def calls_of(case: Case) -> list[Call]:
    """Every one, once each; none where one is not known, or not the program's own."""
    found: dict[tuple[str, int, str], Call] = {}
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
        found[place.file, place.line, place.text] = Call(place, tree, arguments, parameters)
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
