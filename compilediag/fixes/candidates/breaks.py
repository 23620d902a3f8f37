"""Edits at the line of a graph break, or of reads that make the host wait. Whether one fits what
stands there, its codemod decides on the text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from compilediag.fixes.candidates.case import Case
from compilediag.fixes.candidates.messages import message_writer
from compilediag.fixes.changes import Change
from compilediag.fixes.codemods.edit import Edit
from compilediag.receipt.schema.compiles import FindingRecord

_AUTOCAST = 2
"""Operations of a graph that enter and leave it."""


@dataclass(frozen=True, slots=True)
class _AtLine:
    """An edit of the line that a break is in."""

    rules: tuple[str, ...]
    kind: str
    what: str
    """What is written there."""
    risk: str


_EDITS = (
    _AtLine(
        ("CD290",),
        "applied",
        "write what `apply_` computes by operations of tensors",
        "integers beyond 2**53 are rounded, and nan stays nan where `int` raises an error",
    ),
    _AtLine(
        ("CD201",),
        "branch",
        "choose with `torch.where`, or raise with `torch._assert_async`, instead of the branch",
        "both sides are computed in every call; an error is a RuntimeError without values in its "
        "text, and on a GPU a device-side assert, later",
    ),
    _AtLine(
        ("CD202",),
        "as_tensor",
        "keep the value a tensor: `.detach()` instead of the number",
        "computed in the tensor's dtype, a Python number has 64 bits",
    ),
    _AtLine(
        ("CD206", "CD611"),
        "around_call",
        "enter the `with` around the compiled function, by a decorator outside `torch.compile`",
        "guard evaluation and compiling run inside the `with` too",
    ),
    _AtLine(
        ("CD202", "CD210"),
        "masked",
        "reduce or write with `torch.where(mask, …)` instead of selecting first",
        "all elements are computed, also those outside the mask; a mean becomes a sum and a "
        "division, whose sum may overflow in half precision",
    ),
)


def break_edits(case: Case) -> Iterator[Change]:
    """Edits for a break in a file of the program's own, or for reads in a loop of it."""
    yield from _at_line(case)
    yield from _message(case)
    yield from _enabled(case)
    yield from _own_kernel(case)
    yield from _of_call(case)
    yield from _read_at_once(case)
    yield from _on_size(case)
    yield from _every_term(case)
    yield from _once(case)
    yield from _packed(case)


def _packed(case: Case) -> Iterator[Change]:
    """One buffer for all steps, where rows are packed into a new one each time."""
    place, name = case.finding.location, case.finding.variable or ""
    if case.finding.rule == "CD306" and place is not None and case.is_own(place.file):
        yield Change(
            "source",
            f"{place.file}:{place.line}: keep {name} for all steps, fill only what no row covers",
            "each step overwrites the previous step's batch: nothing may still use it",
            edits=(Edit(place.file, place.line or 0, "kept_buffer", (name,)),),
        )


def _once(case: Case) -> Iterator[Change]:
    """Constants that are compared before each call, where they are most of what is."""
    kinds: Any = case.finding.evidence.get("kinds") or {}
    if case.finding.rule == "CD621" and 2 * kinds.get("EQUALS_MATCH", 0) > sum(kinds.values()):
        risk = "it is not computed again if another file changes the list later"
        yield from _change(case, "once_in_init", "compute it once, in `__init__`", risk)


def _every_term(case: Case) -> Iterator[Change]:
    """Terms that the loss has in some steps, before the call of `backward`."""
    called = case.finding.entered_at
    if case.finding.rule == "CD153" and called is not None and case.is_own(called.file):
        yield Change(
            "source",
            f"{called.file}:{called.line}: every term of the loss in every step, or 0 in its place",
            "parameters that only such a term reads get a gradient of zeros instead of none",
            edits=(Edit(called.file or "", called.line or 0, "every_term"),),
            recaptured=True,
        )


def _on_size(case: Case) -> Iterator[Change]:
    """A branch that compares a size with a number."""
    needed: Any = case.finding.evidence.get("size_needed") or {}
    if case.finding.rule not in ("CD105", "CD118") or needed.get("by") != "branch":
        return
    file, line = needed.get("file"), needed.get("line")
    if line and case.is_own(file):
        yield Change(
            "source",
            f"{file}:{line}: decide by a tensor that holds the size, with `torch.where`",
            "both sides are computed in every call",
            edits=(Edit(file, line, "branch_on_size"),),
        )


def _at_line(case: Case) -> Iterator[Change]:
    for item in _EDITS:
        if case.finding.rule in item.rules:
            lines = case.lines_alike if item.kind == "branch" else ()
            several = lines if len(lines) > 1 else ()
            for change in _change(case, item.kind, item.what, item.risk, *map(str, several)):
                yield replace(change, moved_out=_AUTOCAST * (case.finding.rule == "CD611"))


def _change(case: Case, kind: str, what: str, risk: str, *code: str) -> Iterator[Change]:
    """An edit of the line that the finding is about, and of those that are like it."""
    place, lines = case.finding.location, case.lines_alike
    if place is not None and lines and case.is_own(place.file):
        where = f"{place.file}:{', '.join(map(str, lines))}"
        edits = tuple(Edit(place.file, line, kind, code) for line in lines)
        yield Change("source", f"{where}: {what}", risk, edits=edits)


def _message(case: Case) -> Iterator[Change]:
    """Functions of the program's own that write text, branches around them, and clocks and numbers
    that are read for them."""
    rules = ("CD201", "CD202", "CD203", "CD204", "CD211", "CD290")
    if case.finding.rule in rules and message_writer(case.finding) is None:
        what = "put the statements that write text under `if not torch.compiler.is_compiling():`"
        yield from _change(case, "message", what, "the message is not written while compiled")


def _enabled(case: Case) -> Iterator[Change]:
    callee: Any = case.finding.evidence.get("callee")
    reason = str(case.finding.evidence.get("reason") or "")
    if case.finding.rule != "CD204" or not isinstance(callee, dict) or ".disable" not in reason:
        return
    name = str(callee.get("name") or "")  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    if name:
        what = f"remove `torch.compiler.disable` from `{name}`"
        risk = "the function was kept from being compiled on purpose"
        yield from _change(case, "without_disable", what, risk, name)


def _own_kernel(case: Case) -> Iterator[Change]:
    """An operator of the program's own. Of a kernel that is not operations of torch alone, the
    shapes of what it returns cannot be derived."""
    callee: Any = case.finding.evidence.get("callee")
    place = case.finding.location
    if case.finding.rule != "CD210" or not isinstance(callee, dict) or place is None:
        return
    parts = str(callee.get("name") or "").split(".")  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    if len(parts) >= 2 and case.is_own(place.file):
        operator = f"{parts[0]}::{parts[1]}"
        yield Change(
            "source",
            f"{place.file}:{place.line}: call the kernel of {operator} itself",
            "kernels for other devices, and a formula for its gradient, are not used there",
            edits=(Edit(place.file or "", place.line or 0, "own_kernel", (operator,)),),
        )


def _of_call(case: Case) -> Iterator[Change]:
    """What the program passes where it calls the compiled function."""
    entered = case.finding.entered_at
    if entered is None or not entered.file or not entered.text or not case.is_own(entered.file):
        return
    where = f"{entered.file}:{entered.line}"
    if case.finding.rule == "CD205":
        yield Change(
            "source",
            f"{where}: pass a list instead of a generator",
            "a list holds all items at once, and all are made before the call",
            edits=(Edit(entered.file, entered.line, "as_list", (entered.text,)),),
        )
    sparse = "sparse" in str(case.finding.evidence.get("reason") or "").lower()
    if case.finding.rule != "CD208" or not sparse:
        return
    for passed in entered.arguments:
        code = (entered.text, passed.expression)
        yield Change(
            "source",
            f"{where}: pass {passed.expression}.to_dense()",
            "a dense tensor has memory for every element",
            edits=(Edit(entered.file, entered.line, "as_dense", code),),
        )


def _read_at_once(case: Case) -> Iterator[Change]:
    """All loops with reads of one function: in another run they cannot be told apart."""
    place = case.finding.location
    if case.finding.rule != "CD301" or place is None or not case.is_own(place.file):
        return
    there = [
        each
        for each in case.receipt.findings
        if each.rule == "CD301"
        and each.location is not None
        and (each.location.file, each.location.function) == (place.file, place.function)
    ]
    lines = [line for each in there for line in _lines_of(each)]
    if not lines:
        return
    edits = tuple(Edit(place.file, line, "read_at_once") for line in dict.fromkeys(lines))
    yield Change(
        "source",
        f"{place.file}:{place.line}: read all values by one `.tolist()` before the loop",
        "values that the loop would not have reached are read too",
        edits=edits,
    )


def _lines_of(finding: FindingRecord) -> Iterator[int]:
    lines: Any = finding.evidence.get("lines")
    for each in lines or ():
        yield int(each["line"])
