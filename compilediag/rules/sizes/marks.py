"""How a program marks a size as dynamic, in words that can be followed literally.

A mark is an attribute of one tensor object: it has no effect where the expression that is marked
and the one that is passed make two tensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from compilediag.diagnosis.causes.group import Group
from compilediag.rules.facts import passed_for
from compilediag.rules.make_finding import shorten
from compilediag.rules.recompiles import passed_as
from compilediag_harness.wire import UserCall

_FROM_FIRST = ", from the first call on"
_FROM_FIRST_PASSED = ", from the first call on that passes it"
_MAX_MARKS = 4
"""Calls printed in a fix."""
_MAX_LENGTH = 60
"""Characters of an expression in a sentence."""

SAME_TENSOR = re.compile(
    r"""[^\W\d]\w*(?:\.(?!(?:T|H|mT|mH|data|real|imag)\b)\w+|\[(?:'[^']*'|"[^"]*")\])*"""
)
"""An expression that is the same tensor each time: an item by a number or by a variable may be a
view or a copy, one by a text is that of a dict."""
_KEY = re.compile(r"\[['\"]")


def marking(group: Group, dimensions: Mapping[str, Sequence[object]]) -> str:
    """What to write, where: "call torch._dynamo.maybe_mark_dynamic(batch, 0) before train.py:3,
    from the first call on". What the call itself computes needs a variable to be marked."""
    call = group.recompiles[0].entered_at
    whole = {name: _passed_whole(group, name) for name in dimensions}
    known = [each for each in whole.values() if each is not None]
    if call is None or len(known) < len(whole) or all(map(SAME_TENSOR.fullmatch, known)):
        passed = {passed_as(group, name): found for name, found in dimensions.items()}
        return f"call {_marks(passed)} before {_since(group, [*passed], call)}"
    return _with_variables({whole[name]: found for name, found in dimensions.items()}, call)


def since_first_call(summary: str, first: UserCall | None) -> str:
    """The sentence with the line of the first call, where that is another one."""
    place = None if first is None else _place(first)
    if place is None or f" {place}, " in summary or _FROM_FIRST_PASSED in summary:
        return summary
    marked = ", and mark" if summary.startswith("assign") else " and on"
    also = f"{marked} what {place} passes before that, the first call"
    return summary.replace(_FROM_FIRST, also)


def _passed_whole(group: Group, variable: str) -> str | None:
    """The expression that is passed for a variable; None where it is not known, or the program
    passes something that holds the variable."""
    path, arguments = passed_for(group, variable)
    return arguments.get(path)


def _with_variables(passed: Mapping[str | None, Sequence[object]], call: UserCall) -> str:
    shown = [f"`{shorten(each or '', _MAX_LENGTH)}`" for each in passed]
    same = len({tuple(found) for found in passed.values()}) == 1
    if len(shown) == 1 or not same:
        names = [f"t{at if len(shown) > 1 else ''}" for at in range(1, len(shown) + 1)]
        marks = _marks(dict(zip(names, passed.values(), strict=True)))
        assigned = " and ".join(
            f"{text} to a variable {name}" for text, name in zip(shown, names, strict=True)
        )
        steps = f"assign {assigned}, call {marks} and pass {' and '.join(names)}"
    else:
        named = f"{', '.join(shown[:-1])} and {shown[-1]}"
        marks = _marks({"t": next(iter(passed.values()))})
        steps = f"assign {named} to variables, call {marks} for each variable t, and pass them"
    return f"{steps} at {_place(call)}{_FROM_FIRST}"


def _marks(tensors: Mapping[str, Iterable[object]]) -> str:
    marks = [
        f"torch._dynamo.maybe_mark_dynamic({tensor}, {dimension})"
        for tensor, dimensions in tensors.items()
        for dimension in dimensions
    ]
    if len(marks) > _MAX_MARKS:
        marks = [*marks[:_MAX_MARKS], f"{len(marks) - _MAX_MARKS} more alike"]
    return ", ".join(marks)


def _since(group: Group, passed: Sequence[str], call: UserCall | None) -> str:
    # A dict may not have the key yet in earlier calls.
    by_key = any(_KEY.search(each) for each in passed)
    if call is None or tuple(passed) == tuple(group.variables):
        return f"the first call{' that passes it' * by_key}"
    return f"{_place(call)}{_FROM_FIRST_PASSED if by_key else _FROM_FIRST}"


def _place(call: UserCall) -> str:
    return f"{call.file.replace(chr(92), '/').rpartition('/')[2]}:{call.line}"
