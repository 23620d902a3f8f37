"""Changes of the program's own files that may remove a finding.

Only edits that keep what is computed by their form: marks before a call, and a message that is
left out where the code is compiled. Files of packages are never edited.
"""

from __future__ import annotations

from collections.abc import Iterator

from compilediag.fixes.candidates.case import Case
from compilediag.fixes.candidates.messages import message_writer
from compilediag.fixes.candidates.sizes import DYNAMIC, dimensions_to_mark
from compilediag.fixes.candidates.tensor_marks import before_calls, changed_sizes
from compilediag.fixes.changes import Change
from compilediag.fixes.codemods.edit import Edit


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
    if dimensions and not small:
        yield from before_calls(case, changed_sizes(case, dimensions), DYNAMIC)
