"""Code that runs eager though nothing breaks: generator functions, a switch that is on, calls with
new sizes under a stance that compiles nothing more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from compilediag.fixes.candidates.case import FIRST_WITH_UNBACKED, Case
from compilediag.fixes.candidates.together import SOURCES
from compilediag.fixes.changes import Change
from compilediag.fixes.codemods.edit import Edit
from compilediag.fixes.environment import export_line

_SIZE = re.compile(r"([A-Za-z_]\w*):(\d+)")

_ALL_AT_ONCE = "all items are made and held at once, before the first is used"
_ON_PURPOSE = "compilation may have been switched off on purpose"
_DYNAMIC = "kernels for sizes that vary may be slower"


def compiled_at_all_candidates(case: Case) -> Iterator[Change]:
    """Edits after which torch compiles what it did not."""
    if case.finding.rule == "CD904":
        yield from _generator(case)
        yield from _under_stance(case)
    elif case.finding.rule == "CD901":
        yield from _of_files(case)


def _generator(case: Case) -> Iterator[Change]:
    place = case.finding.location
    reason = str(case.finding.evidence.get("reason") or "")
    if "generator" not in reason or place is None or not place.line or not case.is_own(place.file):
        return
    yield Change(
        "source",
        f"{place.file}:{place.line}: return a list instead of yielding",
        _ALL_AT_ONCE,
        edits=(Edit(place.file or "", place.line, "generator_as_list"),),
    )


def _under_stance(case: Case) -> Iterator[Change]:
    """The sizes that varied in calls of these functions, dynamic from their first compile on."""
    functions: Any = case.finding.evidence.get("functions") or ()
    dims = {
        name
        for item in case.receipt.invocations
        if item.name in functions and item.varying is not None
        for group in item.varying.dims
        for name in group
    }
    found = [_SIZE.fullmatch(name) for name in sorted(dims)]
    if case.finding.evidence.get("stance") != "eager_on_recompile" or not found:
        return
    if case.version >= FIRST_WITH_UNBACKED and all(found):
        value = ",".join(f"L['{each[1]}']:{each[2]}" for each in found if each)
        yield Change(
            "environment", export_line(SOURCES, value), _DYNAMIC, variables=((SOURCES, value),)
        )


def _of_files(case: Case) -> Iterator[Change]:
    """Whether a file of the program has such a statement, the codemods decide on its text."""
    for file in case.receipt.header.provenance.source_sha256:
        yield Change(
            "source",
            f"{file}: without the variable of the environment that switches compilation off",
            _ON_PURPOSE,
            edits=(Edit(file, 1, "without_switch"),),
        )
