"""Places as text: the program's own line first, that of a library behind it."""

from __future__ import annotations

from compilediag.compare.keys import portable_file
from compilediag.receipt.schema.compiles import (
    CompileEvent,
    EnteredAt,
    FindingRecord,
    FrameDetail,
    GraphBreak,
    Place,
)
from compilediag.receipt.user_line import (
    NOT_RECORDED,
    is_foreign,
    is_foreign_record,
    leading_call,
    passed,
)
from compilediag.views.style import RenderOptions

_CALL_CHARS = 120
_NOT_YOURS = {"third_party": "in a library", "torch": "in torch itself"}


def line_of(file: str, line: int | None, function: str, options: RenderOptions) -> str:
    """`model.py:7 in forward`."""
    inside = f" in {options.text(function, 60)}" if function else ""
    return options.place(file, line) + inside


def called(call: EnteredAt, options: RenderOptions) -> str:
    """`train.py:36 in main: model(x, batch)`."""
    where = line_of(call.file, call.line, call.function, options)
    return f"{where}: {options.text(call.text, _CALL_CHARS)}" if call.text else where


def first_line(finding: FindingRecord, options: RenderOptions) -> str:
    """Format the line of the program's own where there is one; "" where no line is to blame."""
    call, location = leading_call(finding), finding.location
    if call is not None:
        return called(call, options)
    if location is None:
        return ""
    return line_of(location.file, location.line, location.function, options)


def library_line(finding: FindingRecord, options: RenderOptions) -> list[str]:
    """List what stands behind the first line where the place is in a library or in torch: that
    place, whose it is, and where no call of the program's own is known, what is known instead."""
    location = finding.location
    if location is None or not is_foreign_record(finding):
        return []
    owner = [_NOT_YOURS[finding.ownership]] if finding.ownership in _NOT_YOURS else []
    if leading_call(finding) is None:
        return [*owner, no_call(finding, options)]
    return [place_of(finding, location, options), *owner]


def place_of(finding: FindingRecord, location: Place, options: RenderOptions) -> str:
    """Format the finding's own place; of a library or torch by the package's path."""
    file = portable_file(location.file) if is_foreign_record(finding) else location.file
    return line_of(file, location.line, location.function, options)


def short_frame(item: CompileEvent, options: RenderOptions) -> str:
    """`forward, model.py:7`; of a frame in a library or torch also the line of the call."""
    frame, call = item.frame, item.entered_at
    name = options.text(frame.function, 60)
    if not is_foreign(None, frame.file):
        return f"{name}, {options.place(frame.file, frame.line)}"
    shown = f"{name}, {options.place(portable_file(frame.file), frame.line)}"
    if call is not None:
        return f"{options.place(call.file, call.line)}: {shown}"
    return shown


def no_call(
    record: FindingRecord | GraphBreak | FrameDetail | CompileEvent, options: RenderOptions
) -> str:
    """Describe what is known instead of a call where none of the program's own is."""
    if record.entered_from:
        return f"entered from {options.text(record.entered_from, 200)}, no line of which is yours"
    return NOT_RECORDED


def passed_at(finding: FindingRecord, options: RenderOptions) -> str:
    """Format what the call passes for the variable: "train.py:36 passes batch['x'] for x"; "" where
    that is not known."""
    call, found = finding.entered_at, passed(finding.variable, finding.entered_at)
    if call is None or found is None:
        return ""
    parameter, expression = found
    what = f"{options.text(expression, _CALL_CHARS)} for {options.text(parameter, 60)}"
    who = "" if leading_call(finding) is not None else f"{options.place(call.file, call.line)} "
    return f"{who}passes {what}"
