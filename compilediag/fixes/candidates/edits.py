"""Changes of the program's own files that may remove a finding.

Only edits that keep what is computed by their form: marks before a call, and a message that is
left out where the code is compiled. Files of packages are never edited.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from compilediag.fixes.candidates.case import PARAMETER, Case
from compilediag.fixes.candidates.messages import message_writer
from compilediag.fixes.candidates.program_calls import PLAIN
from compilediag.fixes.candidates.sizes import DYNAMIC, MARK, dimensions_to_mark
from compilediag.fixes.changes import Change
from compilediag.fixes.codemods.edit import Edit
from compilediag.receipt.schema.compiles import CompileEvent


def edit_candidates(case: Case) -> Iterator[Change]:
    """Edits that may remove a finding."""
    yield from _marks(case)
    yield from _left_out(case)


def _left_out(case: Case) -> Iterator[Change]:
    """A break at a call that writes text."""
    place = case.finding.location
    if (
        message_writer(case.finding) is None
        or place is None
        or not place.line
        or not case.is_own(place.file)
    ):
        return
    lines = case.lines_alike
    where = f"{place.file}:{', '.join(map(str, lines))}"
    yield Change(
        "source",
        f"{where}: put the call under `if not torch.compiler.is_compiling():`",
        "the message is not written while compiled",
        edits=tuple(Edit(place.file, line, "unless_compiling") for line in lines),
    )


def _marks(case: Case) -> Iterator[Change]:
    """Marks before every call by which the function was compiled."""
    dimensions, small = dimensions_to_mark(case)
    source = PARAMETER.fullmatch(case.source)
    if source is None or not dimensions or small:
        return
    edits = dict.fromkeys(_at_calls(case.compiles_of_frames, source, dimensions))
    made = [edit for edit in edits if edit is not None and case.is_own(edit.file)]
    if not made or len(made) != len(edits):
        return
    first, others = made[0], len(made) - 1
    also = f" (and at {others} other call{'s' * (others > 1)})" if others else ""
    yield Change(
        "source",
        f"{first.file}:{first.line}: {'; '.join(first.code)}  # before the call{also}",
        DYNAMIC,
        edits=tuple(made),
    )


def _at_calls(
    compiles: Iterable[CompileEvent], source: re.Match[str], dimensions: Iterable[int]
) -> Iterator[Edit | None]:
    """None for a call that passes no plain variable, or is not known."""
    chosen = list(dimensions)
    for event in compiles:
        entered = event.entered_at
        passed = {} if entered is None else {a.parameter: a.expression for a in entered.arguments}
        whole, root = f"{source[1]}{source[2]}", passed.get(source[1], "")
        name = passed.get(whole) or (f"{root}{source[2]}" if root.isidentifier() else "")
        if entered is None or not entered.file or not PLAIN.fullmatch(name):
            yield None
            continue
        code = tuple(f"torch._dynamo.{MARK}({name}, {at})" for at in chosen)
        yield Edit(entered.file, entered.line, "before", code)
