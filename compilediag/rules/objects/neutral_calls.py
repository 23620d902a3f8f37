"""An argument that some calls pass and others do not, passed in all of them: a mask that hides
nothing. What it does in the function nothing shows here: the trial compares the results."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from compilediag.rules.case import PARAMETER, PLAIN, Call, Case, Key, calls_of, edit_calls
from compilediag.rules.changes import Change, Edit

_KEYWORD = re.compile(r"\['([A-Za-z_]\w*)'\]")
_FLAG_RISK = "every call takes the same side of what the flag decides"


_TENSOR = re.compile(r"(?:([\w.\[\]']+)=)?\[([\d, ]*)\]")
_SEEN_DTYPE = re.compile(r"torch\.\w+$")
_NEUTRAL_BY_NAME = re.compile(r"mask|bias|weight|scale|factor")
_MASK = re.compile(r"mask")

_VALUES = {"torch.bool": ("ones", "zeros"), "torch.int64": ("ones", "zeros")}
"""In the order of trying; of other dtypes zeros first, which are added."""

_RISK = "adds a tensor to every call; attention with a mask may use a slower kernel"

Shape = tuple[int, ...]


def neutral_call_candidates(case: Case) -> Iterator[Change]:
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


def _optional(case: Case, calls: Sequence[Call]) -> str | None:
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
    rows: Sequence[Mapping[Key, Shape]], call: Call, key: Key | None
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
    call: Call, name: str, sizes: Sequence[tuple[Key, int] | int], value: str, dtype: str
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


def _fill(call: Call, sizes: Sequence[tuple[Key, int] | int], value: str, dtype: str) -> str | None:
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


def one_flag_candidates(case: Case) -> Iterator[Change]:
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


def _edit_flag(call: Call, name: str, value: str) -> Edit | None:
    """None for a call that passes it so already."""
    key, text = call.key_of(name), ast.unparse(call.tree)
    if key is None:
        return Edit(call.place.file, call.place.line, "keyword", (text, name, value))
    if call.arguments[key] == value:
        return None
    place = str([*call.arguments].index(key))
    return Edit(call.place.file, call.place.line, "argument", (text, place, value))
