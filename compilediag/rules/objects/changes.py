"""Changes for arguments that some calls lack (a mask that hides nothing: what it does in the
function the trial shows), for aliases, and for hooks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from compilediag.diagnosis.codes import HELD
from compilediag.rules.case import PARAMETER, PLAIN, Case, Key, SourceCall, calls_of, edit_calls
from compilediag.rules.changes import DYNAMO, Change, Edit, setting
from compilediag.rules.passed import OtherArgument, argument_of, changes_at_calls
from compilediag_harness.wire import Location, ObjectChange

_TENSOR = re.compile(r"(?:([\w.\[\]']+)=)?\[([\d, ]*)\]")
_SEEN_DTYPE = re.compile(r"torch\.\w+$")
_NEUTRAL_BY_NAME = re.compile(r"mask|bias|weight|scale|factor")
_MASK = re.compile(r"mask")
_VALUES = {"torch.bool": ("ones", "zeros"), "torch.int64": ("ones", "zeros")}
"""In the order of trying; of other dtypes zeros first, which are added."""


_RISK = "adds a tensor to every call; attention with a mask may use a slower kernel"
Shape = tuple[int, ...]
_HOOK = re.compile(r"\._(?:forward|backward)(?:_pre)?_hooks(?:_\w+)?\[")
_SPLIT = "the graph is split where the hook is called, and the hook runs eager"
_CALLED = "the hook is called, and its module is compiled again; guards take longer"
_EACH_COPY = "a copy of the tensor per call"
_OBJECT = r"\"?((?:L\['[A-Za-z_]\w*'\]|[A-Za-z_]\w*)(?:\[\d+\])?)\"?"
_SAME = re.compile(rf"(?:Duplicate tensors found: \[{_OBJECT}, {_OBJECT}\]|{_OBJECT} is {_OBJECT})")
WHY: Mapping[str, str] = {
    "CD102": "what the container holds decides which code runs",
    "CD108": "each length of the container, or set of its keys, is different code",
    "CD110": "each callable is different code, and needs its own graph",
    "CD112": "what is compiled anew has to be compiled once, outside: `fix` moves no code",
    "CD114": "different code runs with and without the value",
    "CD115": "the hook has to be registered once, outside: `fix` moves no code",
}
"""Why no change can be tried, where there is none."""


def neutral_changes(case: Case) -> Iterator[Change]:
    """Edits of the calls that lack it."""
    calls = calls_of(case)
    name = _optional(case, calls)
    passing = [call for call in calls if name is not None and call.key_of(name) is not None]
    if name is None or not passing:
        return
    sizes = _sizes(_rows(case), passing[0], passing[0].key_of(name))
    lacking = [call for call in calls if call not in passing]
    for dtype in _dtypes(case) if sizes is not None else ():
        for value in _VALUES.get(dtype, ("zeros", "ones")):
            edits = [_edit(call, name, sizes or (), value, dtype) for call in lacking or passing]
            made = [edit for edit in edits if edit is not None]
            if len(made) == len(edits):
                yield edit_calls(made, f"pass {name}={made[0].code[2]}", _RISK)


def _optional(case: Case, calls: Sequence[SourceCall]) -> str | None:
    """The parameter that only some calls pass, if a value may change nothing there."""
    found = PARAMETER.fullmatch(case.source)
    if found is None or found[2] or not calls:
        return None
    if case.finding.rule == "CD108":
        keywords = [{key for key in call.arguments if isinstance(key, str)} for call in calls]
        some = set[str]().union(*keywords) - {*keywords[0]}.intersection(*keywords[1:])
        return min(some) if len(some) == 1 and _MASK.search(min(some)) else None
    known = _dtypes(case) == ["torch.bool"] or _NEUTRAL_BY_NAME.search(found[1])
    return found[1] if case.finding.rule == "CD114" and known else None


def _dtypes(case: Case) -> list[str]:
    """Of the tensor that comes at times; a length of keywords does not show it."""
    if case.finding.rule == "CD108":
        return ["torch.int64", "torch.bool"]
    seen = (_SEEN_DTYPE.findall(value) for pair in case.values for value in pair)
    return [*dict.fromkeys(dtype for found in seen for dtype in found)]


def _rows(case: Case) -> list[dict[Key, Shape]]:
    """The shapes of the tensors of calls, by position or keyword."""
    function = case.function
    found: list[dict[Key, Shape]] = []
    for called in case.receipt.invocations:
        if function is None or (called.file, called.line) != (function.file, function.line):
            continue
        for item in called.shapes:
            row: dict[Key, Shape] = {}
            for name, sizes in _TENSOR.findall(item.shapes):
                shape = tuple(int(size) for size in sizes.split(",") if size.strip())
                row[name or sum(isinstance(key, int) for key in row)] = shape
            found.append(row)
    return found


def _sizes(
    rows: Sequence[Mapping[Key, Shape]], call: SourceCall, key: Key | None
) -> list[tuple[Key, int] | int] | None:
    """Where each of its sizes comes from in all calls that pass it: the dimension of another
    argument that may be read twice, or a number."""
    places = len(call.tree.args)
    own = [row for row in rows if key in row and sum(isinstance(k, int) for k in row) == places]
    if key is None or len({len(row[key]) for row in own}) != 1:
        return None
    others = [each for each in own[0] if PLAIN.fullmatch(call.arguments.get(each, ""))]
    return [_size(own, key, at, others) for at in range(len(own[0][key]))]


def _size(
    own: Sequence[Mapping[Key, Shape]], key: Key, at: int, others: Sequence[Key]
) -> tuple[Key, int] | int:
    for other in others:
        rank = len(own[0][other])
        for dimension in sorted(range(rank), key=lambda each: each != at):
            if other != key and all(
                row.get(other, ())[dimension : dimension + 1] == row[key][at : at + 1]
                for row in own
            ):
                return other, dimension
    return own[0][key][at]


def _edit(
    call: SourceCall, name: str, sizes: Sequence[tuple[Key, int] | int], value: str, dtype: str
) -> Edit | None:
    fill = _fill(call, sizes, value, dtype)
    if fill is None:
        return None
    key, text = call.key_of(name), ast.unparse(call.tree)
    if key is None:
        return Edit(call.place.file, call.place.line, "keyword", (text, name, fill))
    chosen = _instead_of_none(call.arguments[key], fill)
    place = str([*call.arguments].index(key))
    code = (text, place, chosen or "")
    return Edit(call.place.file, call.place.line, "argument", code) if chosen else None


def _instead_of_none(given: str, fill: str) -> str | None:
    """An argument, `_`, with something else where it is None; None where reading it twice may do
    more."""
    if PLAIN.fullmatch(given):
        return f"{fill} if _ is None else _"
    tree = ast.parse(given, mode="eval").body
    if not isinstance(tree, ast.IfExp):
        return None
    body, other = ast.unparse(tree.body), ast.unparse(tree.orelse)
    if (body == "None") == (other == "None"):
        return None
    body, other = (fill if each == "None" else each for each in (body, other))
    return f"{body} if {ast.unparse(tree.test)} else {other}"


def _fill(
    call: SourceCall, sizes: Sequence[tuple[Key, int] | int], value: str, dtype: str
) -> str | None:
    """The expression that makes it; None where another argument may not be read twice."""
    others = dict.fromkeys(each[0] for each in sizes if not isinstance(each, int))
    texts = {key: call.arguments.get(key, "") for key in others}
    if not all(map(PLAIN.fullmatch, texts.values())):
        return None
    shape = [
        str(each) if isinstance(each, int) else f"{texts[each[0]]}.shape[{each[1]}]"
        for each in sizes
    ]
    device = f", device={next(iter(texts.values()))}.device" if texts else ""
    whole = ", ".join(shape) + "," * (len(shape) == 1)
    return f"torch.{value}(({whole}), dtype={dtype}{device})"


def distinct_changes(case: Case) -> Iterator[Change]:
    """A copy where two arguments are one tensor at times."""
    for passed in _distinct(case):
        yield from changes_at_calls(case, passed)


def _distinct(case: Case) -> Iterator[OtherArgument]:
    """One of two arguments that are one tensor at times."""
    if case.finding.rule != "CD113":
        return
    same = _SAME.search(case.guard)
    names = [argument_of(name) for name in (same.groups() if same else ()) if name]
    if len(names) == 2 and names[1] is not None and names[0] is not None:
        yield OtherArgument(names[1], "clone", "_.clone()", _EACH_COPY)


def hook_changes(case: Case) -> Iterator[Change]:
    """A guard on what a hook reads is one on all of the compiled function."""
    place = case.finding.location
    if case.finding.rule not in HELD or place is None:
        return
    name = (place.function or "").rpartition(".")[2]
    of_hook = _HOOK.search(case.source) is not None
    if not of_hook and case.finding.rule != "CD109":  # that a hook reads it shows its registration
        return
    if not name.isidentifier() or not case.is_own(place.file):
        return
    one = f"disable_hook:{place.file}:{name}:{place.line}"
    yield Change(
        "source",
        f"{place.file}:{place.line}: torch.compiler.disable({name}) where it is registered",
        _SPLIT,
        disables=name,
        edits=(Edit(place.file or "", place.line or 0, "disabled_hook"),),
        same_as=one,
    )
    if not of_hook:
        return
    yield Change(
        "object",
        f"torch.compiler.disable({name})  # where it is registered as a hook, "
        f"{place.file}:{place.line}",
        _SPLIT,
        disables=name,
        same_as=one,
        objects=(
            ObjectChange("disable_hook", name, Location(place.file or "", place.line or 0, name)),
        ),
    )


def late_hook_changes(case: Case) -> Iterator[Change]:
    """Guards on the hooks of modules, so that one that is registered late is called."""
    if case.finding.rule == "CD119":
        change = setting(DYNAMO, "skip_nnmodule_hook_guards", False, _CALLED)
        yield replace(change, corrects=True)
