"""Changes for Python values: settings, a number as a tensor, a value that is set before the call,
one flag for all calls."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from packaging.version import Version

from compilediag.diagnosis.causes.group import Group
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.rules.case import (
    FIRST_WITH_UNBACKED,
    PARAMETER,
    PLAIN,
    Case,
    SourceCall,
    calls_of,
    edit_calls,
)
from compilediag.rules.changes import (
    DYNAMO,
    LISTABLE,
    OVERRIDES,
    SOURCES,
    Change,
    Edit,
    NumberAsTensor,
    setting,
    variable,
)
from compilediag.rules.facts import is_branched_on, is_constant
from compilediag.rules.passed import OtherArgument, argument_of, changes_at_calls

_NUMBERS = ("CD101", "CD104", "CD107", "CD109", "CD117")
_HELD = tuple(code for code in _NUMBERS if code != "CD107")
_OF_MODULES = ("CD104", "CD117")
_INT = re.compile(r"-?\d+")
_FLOAT = re.compile(r"-?(?:\d+\.\d*|\d*\.\d+)(?:e[+-]?\d+)?|-?\d+e[+-]?\d+")
_EVERY_NAMESAKE = "holds for every compiled function with a variable of this name"
_EVERY_FUNCTION = "holds for every compiled function, which may run slower"
_ATTRIBUTE = re.compile(r".*(?:\.|\._buffers\[')([A-Za-z_]\w*)(?:'\])?")
_GLOBAL = re.compile(r"G\['([A-Za-z_]\w*)'\]")
_READ_BY_VALUE = "other code that reads it gets a tensor; `.item()` gives the number"
_OF_SELF = re.compile(r"L\['self'\]((?:\.\w+|\['\w+'\])+)")
_FROM_THE_START = (
    "it has this value from the first call on, even where other code would set it differently"
)
_REGISTERED = re.compile(r"\._(?:modules|buffers|parameters)\['(\w+)'\]")
_KEYWORD = re.compile(r"\['([A-Za-z_]\w*)'\]")
_FLAG_RISK = "every call takes the same side of what the flag decides"
_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?")
AS_TENSOR = "the function gets a tensor: a Python branch on it is no longer possible"
_NO_NUMBER = "the value is not a number, or it decides a branch"
WHY: Mapping[str, str] = {
    "CD101": f"{_NO_NUMBER}, or other code sees it change",
    "CD104": f"{_NO_NUMBER}, or other parameters go with it",
    "CD107": _NO_NUMBER,
    "CD109": f"{_NO_NUMBER}, or other code sees it change",
    "CD117": "each instance is different code, and needs its own graph",
}
"""Why no change can be tried, where there is none."""


def setting_changes(case: Case) -> Iterator[Change]:
    """Where torch has no variable of the environment for it."""
    if case.finding.rule not in _NUMBERS or case.version >= FIRST_WITH_UNBACKED:
        return
    if case.are_integers and case.finding.rule in _OF_MODULES:
        yield setting(DYNAMO, "allow_unspec_int_on_nn_module", True, _EVERY_FUNCTION, left=1)
    elif _are_floats(case):
        yield setting(DYNAMO, "assume_static_by_default", False, _EVERY_FUNCTION)


def branched_changes(case: Case) -> Iterator[Change]:
    """For a number that the code branches on: each outcome of the branch has a graph then, not each
    number. An edit that leaves no recompile comes first."""
    new = case.version >= FIRST_WITH_UNBACKED
    if case.finding.rule not in _NUMBERS or not new or case.finding.fix.candidates:
        return
    if case.are_integers and LISTABLE.fullmatch(case.source):
        yield variable(SOURCES, case.source, _EVERY_NAMESAKE, left=1)
    elif case.are_numbers:
        yield variable(OVERRIDES, ">=0:assume_static_by_default=False", _EVERY_FUNCTION, left=1)


def _are_floats(case: Case) -> bool:
    return bool(case.values) and all(
        _FLOAT.fullmatch(each) for pair in case.values for each in pair
    )


def passed_changes(case: Case) -> Iterator[Change]:
    """A number that is an argument itself, as a tensor."""
    for passed in _passed(case):
        yield from changes_at_calls(case, passed)


def _passed(case: Case) -> Iterator[OtherArgument]:
    """A number that is an argument itself: where it is a size, torch needs it as a number, and the
    trial fails."""
    values = [value for pair in case.values for value in pair]
    numbers = [value for value in values if _NUMBER.fullmatch(value)]
    argument = argument_of(case.source) if case.finding.rule == "CD107" else None
    if argument is None or not numbers or not _NUMBER.fullmatch(case.values[0][0]):
        return
    if all(value.lstrip("-").isdigit() for value in numbers):
        yield OtherArgument(argument, "tensor", "torch.tensor(_)", AS_TENSOR)
    else:
        code = "torch.tensor(_, dtype=torch.float64)"
        yield OtherArgument(argument, "tensor(torch.float64)", code, AS_TENSOR)


def tensor_changes(case: Case) -> Iterator[Change]:
    """An edit of the file that reads it there."""
    if case.finding.rule not in _HELD or not case.are_numbers:
        return
    name, place = _name_of(case), case.finding.location
    if name is None or place is None or not place.line or not case.is_own(place.file):
        return
    dtype = "int64" if case.are_integers else "float64"
    is_attribute = case.source.endswith(f".{name}")
    shown = case.finding.variable or name
    yield Change(
        "source",
        f"{place.file}:{place.line}: {shown} as a 0-dim tensor (torch.{dtype}), changed in place",
        _READ_BY_VALUE,
        edits=(Edit(place.file or "", place.line, "number_as_tensor", (name, dtype)),),
        numbers=(NumberAsTensor(name, dtype),) if is_attribute else (),
    )


def _name_of(case: Case) -> str | None:
    """The name that the program reads: an attribute's, a global's, or one of a function around."""
    source = case.source
    found = _GLOBAL.fullmatch(source)
    if found is None and not source.endswith(".cell_contents"):
        found = _ATTRIBUTE.fullmatch(source)
    if found is not None:
        return found[1]
    shown = case.finding.variable or ""
    return shown if case.finding.rule == "CD101" and shown.isidentifier() else None


def filled_changes(case: Case) -> Iterator[Change]:
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


def flag_changes(case: Case) -> Iterator[Change]:
    """Edits of every call by which the function was compiled."""
    name = _flag(case)
    calls = calls_of(case) if name is not None else []
    for value in ("True", "False"):
        edits = [
            edit for call in calls if (edit := _edit_flag(call, name or "", value)) is not None
        ]
        if edits:
            yield edit_calls(edits, f"pass {name}={value}", _FLAG_RISK)


def _flag(case: Case) -> str | None:
    """The name by which calls pass it, themselves or among keywords that the function collects."""
    found = PARAMETER.fullmatch(case.source)
    values = {value for pair in case.values for value in pair}
    if case.finding.rule != "CD107" or found is None or values != {"True", "False"}:
        return None
    keyword = _KEYWORD.fullmatch(found[2])
    return found[1] if not found[2] else keyword[1] if keyword is not None else None


def _edit_flag(call: SourceCall, name: str, value: str) -> Edit | None:
    """None for a call that passes it so already."""
    key, text = call.key_of(name), ast.unparse(call.tree)
    if key is None:
        return Edit(call.place.file, call.place.line, "keyword", (text, name, value))
    if call.arguments[key] == value:
        return None
    place = str([*call.arguments].index(key))
    return Edit(call.place.file, call.place.line, "argument", (text, place, value))


def dynamic_int(group: Group, version: Version) -> str | None:
    """torch takes an int of a listed source for dynamic from the first compile on. A branch on its
    value keeps a guard on it, which recompiles all the same."""
    source = group.first.source
    if group.code not in _NUMBERS or not LISTABLE.fullmatch(source):
        return None
    if source.startswith("G") and version < FIRST_WITH_UNBACKED:
        return None
    if "cell_contents" in source:  # a captured int is reached as a local of the compiled function
        return None
    if group.code == "CD107" and is_constant(group):
        return None
    return source if _all_values(group, _INT) and not is_branched_on(group) else None


def dynamic_float(group: Group, version: Version) -> str | None:
    """Dynamic from the first compile on instead of from the second."""
    if group.code not in (*_NUMBERS, "CD116") or version < FIRST_WITH_UNBACKED:
        return None
    works = _all_values(group, _FLOAT) and not is_branched_on(group)
    works = works and not (group.code == "CD107" and is_constant(group))
    return "assume_static_by_default=False" if works else None


def unspecialised_int(group: Group, version: Version) -> str | None:
    """An int of a module becomes dynamic at its second value."""
    if group.code not in _OF_MODULES or version < FIRST_WITH_UNBACKED:
        return None
    works = _all_values(group, _INT) and len(group.values) > 1 and not is_branched_on(group)
    return "allow_unspec_int_on_nn_module=True" if works else None


def _all_values(group: Group, kind: re.Pattern[str]) -> bool:
    shown = [value for cause in group.causes for value in (cause.expected, cause.actual)]
    return all(value is not None and kind.fullmatch(value) for value in shown)
