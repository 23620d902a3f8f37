"""Changes of the program's own files that may remove a finding.

Only edits that keep what is computed by their form: marks before a call, and a message that is
left out where the code is compiled. Files of packages are never edited.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from compilediag.diagnosis.causes.changed_sizes import changed_dimensions
from compilediag.fixes.changes import Change
from compilediag.fixes.messages import message_writer
from compilediag.fixes.source_text import Edit
from compilediag.receipt.schema.compiles import CompileEvent, FindingRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag_harness.wire import resumed_function

_PARAMETER = re.compile(r"L\['([A-Za-z_]\w*)'\]((?:\[[^\s\]]+\])*)")


def source_changes_of(finding: FindingRecord, receipt: Receipt) -> Iterator[Change]:
    """Edits that may remove a finding."""
    yield from _marks(finding, receipt)
    yield from _left_out(finding, receipt)


def _is_own(file: str | None, receipt: Receipt) -> bool:
    return file in receipt.header.provenance.source_sha256


def _left_out(finding: FindingRecord, receipt: Receipt) -> Iterator[Change]:
    """A break at a call that writes text."""
    place = finding.location
    if (
        message_writer(finding) is None
        or place is None
        or not place.line
        or not _is_own(place.file, receipt)
    ):
        return
    yield Change(
        "source",
        f"{place.file}:{place.line}: put the call under `if not torch.compiler.is_compiling():`",
        "the message is not written while compiled",
        edits=(Edit(place.file, place.line, "unless_compiling"),),
    )


def _marks(finding: FindingRecord, receipt: Receipt) -> Iterator[Change]:
    """Marks before every call by which the function was compiled."""
    if finding.rule != "CD105" or finding.evidence.get("kind") == "marking":
        return
    pairs: list[tuple[str, str]] = finding.evidence.get("values") or []
    changed = [item for pair in pairs for item in changed_dimensions(*pair)]
    dimensions = sorted({item.dimension for item in changed})
    source = _PARAMETER.fullmatch(str(finding.evidence.get("source") or ""))
    small = any({item.before, item.after} & {"0", "1"} for item in changed)
    if source is None or not dimensions or small:
        return
    edits = dict.fromkeys(_at_calls(_compiles(finding, receipt), source, dimensions))
    made = [edit for edit in edits if edit is not None and _is_own(edit.file, receipt)]
    if not made or len(made) != len(edits):
        return
    first, others = made[0], len(made) - 1
    also = f" (and at {others} other call{'s' * (others > 1)})" if others else ""
    yield Change(
        "source",
        f"{first.file}:{first.line}: {'; '.join(first.code)}  # before the call{also}",
        "its sizes are dynamic: kernels may be slower, and a CUDA graph is recorded for each size",
        edits=tuple(made),
    )


def _compiles(finding: FindingRecord, receipt: Receipt) -> list[CompileEvent]:
    """Every compile of the frames that the finding recompiled, but for what goes on behind a graph
    break: no call of the program's enters it."""
    events = receipt.compile.events
    frames = {
        event.frame
        for event in events
        if any(cause.finding == finding.id for cause in event.causes)
        and resumed_function(event.frame.function or "") is None
    }
    return [event for event in events if event.frame in frames]


def _at_calls(
    compiles: Iterable[CompileEvent], source: re.Match[str], dimensions: Iterable[int]
) -> Iterator[Edit | None]:
    """None for a call that passes no plain variable, or is not known."""
    chosen = list(dimensions)
    for event in compiles:
        entered = event.entered_at
        passed = {} if entered is None else {a.parameter: a.expression for a in entered.arguments}
        whole, root = f"{source[1]}{source[2]}", source[1]
        name = passed.get(whole) or (f"{passed[root]}{source[2]}" if root in passed else "")
        if entered is None or not entered.file or not name.partition("[")[0].isidentifier():
            yield None
            continue
        code = tuple(f"torch._dynamo.maybe_mark_dynamic({name}, {at})" for at in chosen)
        yield Edit(entered.file, entered.line, "before", code)
