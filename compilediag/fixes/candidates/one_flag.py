"""A flag that some calls set and others do not, the same in all of them: where it decides nothing
that the program gets back, one graph serves all calls. The trial compares the results."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from compilediag.fixes.candidates.case import PARAMETER, Case
from compilediag.fixes.candidates.program_calls import Call, calls_of, edit_calls
from compilediag.fixes.changes import Change
from compilediag.fixes.edits.edit import Edit

_KEYWORD = re.compile(r"\['([A-Za-z_]\w*)'\]")
_RISK = "every call takes the same side of what the flag decides"


def one_flag_candidates(case: Case) -> Iterator[Change]:
    """Edits of every call by which the function was compiled."""
    name = _flag(case)
    calls = calls_of(case) if name is not None else []
    for value in ("True", "False"):
        edits = [edit for call in calls if (edit := _edit(call, name or "", value)) is not None]
        if edits:
            yield edit_calls(edits, f"pass {name}={value}", _RISK)


def _flag(case: Case) -> str | None:
    """The name by which calls pass it, themselves or among keywords that the function collects."""
    found = PARAMETER.fullmatch(case.source)
    values = {value for pair in case.values for value in pair}
    if case.finding.rule != "CD107" or found is None or values != {"True", "False"}:
        return None
    keyword = _KEYWORD.fullmatch(found[2])
    return found[1] if not found[2] else keyword[1] if keyword is not None else None


def _edit(call: Call, name: str, value: str) -> Edit | None:
    """None for a call that passes it so already."""
    key, text = call.key_of(name), ast.unparse(call.tree)
    if key is None:
        return Edit(call.place.file, call.place.line, "keyword", (text, name, value))
    if call.arguments[key] == value:
        return None
    place = str([*call.arguments].index(key))
    return Edit(call.place.file, call.place.line, "argument", (text, place, value))
