"""An argument that is `None` at times."""

from __future__ import annotations

import re
from collections.abc import Iterator

from compilediag.fixes.candidates.case import PARAMETER, Case
from compilediag.fixes.changes import Change
from compilediag.fixes.codemods.edit import Edit

_DTYPE = re.compile(r"torch\.\w+$")

_ALWAYS = "adds an operation and a tensor where there was none"


def neutral_candidates(case: Case) -> Iterator[Change]:
    """Ones or zeros in place of None, where the file shows which change nothing."""
    called, place = case.finding.entered_at, case.finding.location
    found = PARAMETER.fullmatch(case.source)
    if case.finding.rule != "CD114" or found is None or found[2] or called is None:
        return
    passed = [item.expression for item in called.arguments if item.parameter == found[1]]
    here = place is not None and place.file == called.file and case.is_own(called.file)
    if not here or place is None or not called.text or len(passed) != 1:
        return
    dtype = next((kind[0] for pair in case.values for v in pair if (kind := _DTYPE.findall(v))), "")
    code = (called.text, passed[0], found[1], str(place.line), dtype)
    yield Change(
        "source",
        f"{called.file}:{called.line}: for {found[1]} the ones or zeros that change nothing, "
        "instead of None",
        _ALWAYS,
        edits=(Edit(called.file, called.line, "neutral_argument", code),),
    )
