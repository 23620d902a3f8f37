"""Edits for state that Python code changes and compiled code reads: numbers of attributes, closures
and modules, and tensors that grow. Where an edit is not harmless, its codemod refuses it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from compilediag.diagnosis.causes.changed_sizes import changed_dimensions
from compilediag.fixes.candidates.case import Case
from compilediag.fixes.candidates.options import is_float, is_integer
from compilediag.fixes.changes import Change, NumberAsTensor
from compilediag.fixes.codemods.edit import Edit

_NUMBERS = ("CD101", "CD104", "CD109", "CD117")
_ATTRIBUTE = re.compile(r".*(?:\.|\._buffers\[')([A-Za-z_]\w*)(?:'\])?")
_GLOBAL = re.compile(r"G\['([A-Za-z_]\w*)'\]")

_QUOTED = re.compile(r"'[A-Za-z_]\w*'")

_EVERY_FUNCTION = (
    "each instance computes all of them in every call; another name raises a ValueError until it "
    "is added, and changing the attribute later has no effect"
)
_BOTH_SIDES = "both sides of what it decides are computed in every call, and torch.where chooses"
_READ_BY_VALUE = "other code that reads it gets a tensor; `.item()` gives the number"


def state_candidates(case: Case) -> Iterator[Change]:
    """Numbers as tensors."""
    yield from _numbers(case)
    yield from _functions(case)
    yield from _tables(case)
    yield from _grown(case)
    yield from _learning_rate(case)


def _numbers(case: Case) -> Iterator[Change]:
    if case.finding.rule not in _NUMBERS:
        return
    values = [value for pair in case.values for value in pair]
    if values and set(values) <= {"True", "False"}:
        yield from _as_tensor(case, "flag_as_tensor", "bool")
        return
    if not values or not all(is_integer(value) or is_float(value) for value in values):
        return
    dtype = "int64" if all(map(is_integer, values)) else "float64"
    yield from _as_tensor(case, "number_as_tensor", dtype)


def _functions(case: Case) -> Iterator[Change]:
    """The names of functions that instances have."""
    name, place = variable_name(case), case.finding.location
    values = {value for pair in case.values for value in pair}
    found = sorted(value[1:-1] for value in values if _QUOTED.fullmatch(value))
    if case.finding.rule != "CD117" or name is None or place is None or not place.line:
        return
    if len(found) < max(len(values), 2) or not case.is_own(place.file):
        return
    yield Change(
        "source",
        f"{place.file}:{place.line}: compute by every function that {case.finding.variable} names, "
        "and choose by a buffer of the instance",
        _EVERY_FUNCTION,
        edits=(Edit(place.file, place.line, "chosen_by_buffer", (name, *found)),),
    )


def _tables(case: Case) -> Iterator[Change]:
    """The lists that an integer indexes. The first other value makes it dynamic: one recompile."""
    place = case.finding.location
    values = [value for pair in case.values for value in pair]
    if case.finding.rule not in (*_NUMBERS, "CD107") or place is None or not place.line:
        return
    if not values or not all(map(is_integer, values)) or not case.is_own(place.file):
        return
    yield Change(
        "source",
        f"{place.file}:{place.line}: the lists that {case.finding.variable} indexes as tensors",
        "other code that takes an item gets a tensor; `.item()` gives the number",
        edits=(Edit(place.file, place.line, "tables_as_tensors"),),
        left=1,
        tables=True,
    )


def _as_tensor(case: Case, kind: str, dtype: str) -> Iterator[Change]:
    name, place = variable_name(case), case.finding.location
    if name is None or place is None or not place.line or not case.is_own(place.file):
        return
    is_attribute = case.source.endswith(f".{name}")
    shown = case.finding.variable or name
    yield Change(
        "source",
        f"{place.file}:{place.line}: {shown} as a 0-dim tensor (torch.{dtype}), changed in place",
        _BOTH_SIDES if dtype == "bool" else _READ_BY_VALUE,
        edits=(Edit(place.file, place.line, kind, (name, dtype)),),
        numbers=(NumberAsTensor(name, dtype),) if is_attribute else (),
    )


def _grown(case: Case) -> Iterator[Change]:
    """A buffer at the largest size that it came to, or a cache that remembers how far it is."""
    name, place = variable_name(case), case.finding.location
    if case.finding.rule != "CD103" or name is None or place is None or not place.line:
        return
    if not case.is_own(place.file):
        return
    sizes = list(_sizes(case))
    if not sizes:
        return
    largest = max(sizes)
    yield Change(
        "source",
        f"{place.file}:{place.line}: {case.finding.variable} at its largest size, {largest}, "
        "from `__init__` on",
        "a larger size makes it grow and compile again",
        edits=(Edit(place.file, place.line, "largest_in_init", (name, str(largest))),),
        grown=(name,),
    )


def _learning_rate(case: Case) -> Iterator[Change]:
    called = case.finding.entered_at
    if case.finding.rule != "CD116" or case.kind != "lr" or called is None:
        return
    if not case.is_own(called.file):
        return
    yield Change(
        "source",
        f"{called.file}: the optimizer with lr=torch.tensor(...), which is changed in place",
        "the learning rate is a tensor in checkpoints and where a scheduler returns it",
        edits=(Edit(called.file, called.line, "rate_as_tensor"),),
    )


def _sizes(case: Case) -> Iterator[int]:
    """What was seen of the one size that changed; nothing where that is not evident."""
    if case.kind == "companion":
        values = [value for pair in case.values for value in pair]
        yield from map(int, values) if all(map(is_integer, values)) else ()
        return
    if case.kind != "shape":
        return
    changed = [list(changed_dimensions(*pair)) for pair in case.values]
    if len({each.dimension for items in changed for each in items}) == 1:
        for each in (each for items in changed for each in items):
            yield from (int(value) for value in (each.before, each.after) if value.isdecimal())


def variable_name(case: Case) -> str | None:
    """The name that the program reads: an attribute's, a global's, or one of a function around."""
    source = case.source
    found = _GLOBAL.fullmatch(source)
    if found is None and not source.endswith(".cell_contents"):
        found = _ATTRIBUTE.fullmatch(source)
    if found is not None:
        return found[1]
    shown = case.finding.variable or ""
    return shown if case.finding.rule == "CD101" and shown.isidentifier() else None
