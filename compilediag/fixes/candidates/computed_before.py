"""What compiled code reads that is no tensor and that torch cannot trace or makes a constant of:
computed before the call, and passed as a tensor."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from compilediag.fixes.candidates.case import PARAMETER, Case
from compilediag.fixes.changes import Change
from compilediag.fixes.codemods.edit import Edit

_PATH = re.compile(r"(?:\.[A-Za-z_]\w*)*")
_ITEMS = re.compile(r"(\d+) items?")
_TENSOR = re.compile(r"Tensor \[([\d, ]*)\] (torch\.\w+)")
_ONE_OF = (
    "all of them are computed in every call; any other value raises a ValueError until it is added"
)
_CALLS = ("CD203", "CD212")
_BEFORE = (
    "it is a new tensor in every call; both sides of the branches that it decides are computed"
)


def computed_before_candidates(case: Case) -> Iterator[Change]:
    """Edits that compute it in a decorator of the compiled function."""
    if case.finding.rule in ("CD107", "CD110"):
        yield from _of_argument(case)
    elif case.finding.rule == "CD114":
        yield from _of_none(case)
    elif case.finding.rule == "CD108":
        yield from _of_list(case)
    elif case.finding.rule in _CALLS:
        yield from _of_call(case)
    elif case.finding.rule == "CD213":
        yield from _of_error(case)
    elif case.finding.rule == "CD207":
        yield from _of_attribute(case)


def _of_argument(case: Case) -> Iterator[Change]:
    """Comparisons of a string, a flag, a member of an enum; numbers that a table has for it; the
    function that it names or is."""
    source = PARAMETER.fullmatch(case.source.removesuffix(".__code__"))
    function = case.function
    if source is None or not _PATH.fullmatch(source[2]) or function is None:
        return
    path = f"{source[1]}{source[2]}"
    values = {value for pair in case.values for value in pair}
    flag = ("flag",) * (bool(values) and values <= {"True", "False"})
    what = f"compute what depends on {path} before the call, as tensors"
    if case.finding.rule == "CD107":
        yield from _edit(case, function.file, function.line, what, "of", path, *flag)
    strings = sorted(filter(str.isidentifier, map(_text, values | _met(case))))
    if bool(strings) != (case.finding.rule == "CD107"):
        return
    what = f"compute with every function that {path} may be, and choose by a tensor"
    yield from _edit(
        case, function.file, function.line, what, "one_of", path, *strings, risk=_ONE_OF
    )


def _met(case: Case) -> set[str]:
    """Values of the variable that only other findings have: together with those of another one."""
    found: set[str] = set()
    for each in case.receipt.findings:
        seen: Any = each.evidence.get("values_seen") or {}
        found.update(seen.get(case.finding.variable) or ())
    return found


def _text(value: str) -> str:
    """The text of a string that a guard names; empty for anything else."""
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if quoted else ""


def _of_none(case: Case) -> Iterator[Change]:
    """An attribute of an argument that is a tensor or None: of the shape that was seen."""
    source, function = PARAMETER.fullmatch(case.source), case.function
    seen = {value for pair in case.values for value in pair} - {"None"}
    tensor = _TENSOR.fullmatch(seen.pop()) if len(seen) == 1 else None
    if source is None or function is None or tensor is None or not _PATH.fullmatch(source[2]):
        return
    path = f"{source[1]}{source[2]}"
    made = f"{tensor[1] or '()'}, dtype={tensor[2]}"
    what = f"pass zeros or ones for {path} where it is None"
    yield from _edit(case, function.file, function.line, what, "neutral", path, made)


def _of_list(case: Case) -> Iterator[Change]:
    """A list of tensors, padded to the longest one that was seen."""
    source, function = PARAMETER.fullmatch(case.source), case.function
    found = [_ITEMS.fullmatch(value) for pair in case.values for value in pair]
    lengths = [int(each[1]) for each in found if each is not None]
    if source is None or source[2] or function is None or len(lengths) < len(found) or not found:
        return
    if not case.is_own(function.file):
        return
    longest = str(max(lengths))
    where = f"{function.file}:{function.line}"
    yield Change(
        "source",
        f"{where}: pass {source[1]} padded to {longest} tensors, and leave the padding out of sums",
        "every call computes as many items as the longest list has; a longer one compiles again, "
        "and an empty one raises an IndexError",
        edits=(Edit(function.file, function.line, "padded_list", (source[1], longest)),),
    )


def _of_call(case: Case) -> Iterator[Change]:
    """A call of a function that torch cannot trace, of which no tensor is an argument."""
    callee: Any = case.finding.evidence.get("callee")
    place = case.finding.location
    if not isinstance(callee, dict) or place is None or not place.line:
        return
    name = str(callee.get("name") or "").rpartition(".")[2]  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    if name.isidentifier():
        what = f"call {name} before the compiled function, and pass what it returns as a tensor"
        yield from _edit(case, place.file, place.line, what, "call", name)


def _of_error(case: Case) -> Iterator[Change]:
    """An error that the function raises for its arguments."""
    place = case.finding.location
    if place is not None and place.line:
        what = "raise the error before the call"
        risk = "calls that fail no longer reach the compiled function"
        yield from _edit(case, place.file, place.line, what, "raise", risk=risk)


def _of_attribute(case: Case) -> Iterator[Change]:
    """An attribute that code of the object's own gives."""
    stack: Any = case.finding.evidence.get("stack")
    frames: Any = case.finding.evidence.get("frames")
    for each in reversed(stack or ()):
        if each["function"] in (frames or ()):
            what = "read the attribute before the call, and pass it as a tensor"
            yield from _edit(case, each["file"], each["line"], what, "read")
            return


def _edit(
    case: Case, file: str | None, line: int, what: str, *code: str, risk: str = _BEFORE
) -> Iterator[Change]:
    if file is not None and case.is_own(file):
        edit = Edit(file, line, "computed_before", code)
        yield Change("source", f"{file}:{line}: {what}", risk, edits=(edit,))
