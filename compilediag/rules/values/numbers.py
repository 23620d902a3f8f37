"""A Python number that code changes and compiled code reads, as a tensor. Where that is not
harmless, the edit refuses it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from compilediag.rules.case import Case
from compilediag.rules.changes import Change, Edit, NumberAsTensor
from compilediag.rules.options import is_float, is_integer

_NUMBERS = ("CD101", "CD104", "CD109", "CD117")
_ATTRIBUTE = re.compile(r".*(?:\.|\._buffers\[')([A-Za-z_]\w*)(?:'\])?")
_GLOBAL = re.compile(r"G\['([A-Za-z_]\w*)'\]")

_READ_BY_VALUE = "other code that reads it gets a tensor; `.item()` gives the number"


def number_candidates(case: Case) -> Iterator[Change]:
    """An edit of the file that reads it there."""
    values = [value for pair in case.values for value in pair]
    if case.finding.rule not in _NUMBERS or not values:
        return
    name, place = _name_of(case), case.finding.location
    if name is None or place is None or not place.line or not case.is_own(place.file):
        return
    if not all(is_integer(value) or is_float(value) for value in values):
        return
    dtype = "int64" if all(map(is_integer, values)) else "float64"
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
