"""What is passed to compiled code is made anew for each call, and so is the compiled function."""

from __future__ import annotations

import re
from collections.abc import Iterator

from compilediag.fixes.candidates.case import Case
from compilediag.fixes.changes import Change
from compilediag.fixes.codemods.edit import Edit
from compilediag.receipt.schema.compiles import EnteredAt

_ROOT = re.compile(r"L\['([A-Za-z_]\w*)'\]((?:\[\d+\])?)(?![\[\w'])")
_ONCE = "there is one object where each call had its own"


def made_anew_candidates(case: Case) -> Iterator[Change]:
    """Made once, before the loop or function that makes it; its codemod decides whether it is the
    same each time."""
    if case.finding.rule not in ("CD110", "CD112"):
        return
    calls = [event.entered_at for event in case.compiles]
    edits = dict.fromkeys(_edit(case, call) if call is not None else None for call in calls)
    made = [edit for edit in edits if edit is not None and case.is_own(edit.file)]
    if not made or len(made) != len(edits):
        return
    what = made[0].code[1] or "the compiled function"
    shown = f"`{what}`" if made[0].code[1] else what
    yield Change(
        "source",
        f"{made[0].file}:{made[0].line}: make {shown} once, before the loop or function",
        _ONCE,
        edits=tuple(made),
    )


def _edit(case: Case, call: EnteredAt) -> Edit | None:
    if not call.file or not call.text:
        return None
    if case.finding.rule == "CD112":
        return Edit(call.file, call.line, "hoisted", (call.text, ""))
    found = _ROOT.match(case.source)
    passed = [
        item.expression
        for item in call.arguments
        if found is not None and item.parameter == f"{found[1]}{found[2]}"
    ]
    return Edit(call.file, call.line, "hoisted", (call.text, passed[0])) if passed else None
