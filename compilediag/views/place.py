"""Places as text: the program's own line first, that of a library behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from compilediag.receipt.finding_keys import normalize_file, normalize_function
from compilediag.receipt.schema.compiles import (
    CompileEvent,
    FindingRecord,
    FrameDetail,
    GraphBreak,
    UserCallRecord,
)
from compilediag.receipt.schema.record import FrameName
from compilediag.receipt.user_line import (
    NOT_RECORDED,
    find_leading_call,
    is_foreign,
    is_foreign_record,
)
from compilediag.views.style import RenderOptions

_CALL_CHARS = 120
_NOT_YOURS = {"third_party": "in a library", "torch": "in torch itself"}


def format_line(file: str, line: int | None, function: str, options: RenderOptions) -> str:
    """`model.py:7 in forward`."""
    named = options.clean(normalize_function(function), 60)
    inside = f" in {named}" if function not in ("", "<module>") else ""
    return options.format_place(file, line) + inside


def format_call(call: UserCallRecord, options: RenderOptions) -> str:
    """`train.py:36 in main: model(x, batch)`."""
    where = format_line(call.file, call.line, call.function, options)
    return f"{where}: {options.clean(call.text, _CALL_CHARS)}" if call.text else where


def format_first_line(finding: FindingRecord, options: RenderOptions) -> str:
    """Format the line of the program's own where there is one; "" where no line is to blame."""
    call, location = find_leading_call(finding), finding.location
    if call is not None:
        return format_call(call, options)
    if location is None:
        return ""
    return format_line(location.file, location.line, location.function, options)


def list_library_parts(finding: FindingRecord, options: RenderOptions) -> list[str]:
    """List what stands behind the first line where the place is in a library or in torch: that
    place, whose it is, and where no call of the program's own is known, what is known instead."""
    location = finding.location
    if location is None or not is_foreign_record(finding):
        return []
    owner = [_NOT_YOURS[finding.ownership]] if finding.ownership in _NOT_YOURS else []
    if find_leading_call(finding) is None:
        return [*owner, describe_no_call(finding, options)]
    file = normalize_file(location.file)  # by the package's path
    return [format_line(file, location.line, location.function, options), *owner]


def format_frame(event: CompileEvent, options: RenderOptions) -> str:
    """`forward, model.py:7`; of a frame in a library or torch also the line of the call."""
    frame, call = event.frame, event.entered_at
    name = options.clean(frame.function, 60)
    if not is_foreign(None, frame.file):
        return f"{name}, {options.format_place(frame.file, frame.line)}"
    shown = f"{name}, {options.format_place(normalize_file(frame.file), frame.line)}"
    if call is not None:
        return f"{options.format_place(call.file, call.line)}: {shown}"
    return shown


def name_frames(
    frames: Iterable[FrameName], options: RenderOptions, columns: int
) -> dict[FrameName, str]:
    """Name frames by functions; where several have one name, as `forward`, with their places."""
    names = {frame: normalize_function(frame.function) for frame in frames}
    often = Counter(names.values())
    return {
        frame: options.clean(name, 60)
        + (f" ({options.format_place(frame.file, frame.line, columns)})" if often[name] > 1 else "")
        for frame, name in names.items()
    }


def describe_no_call(
    record: FindingRecord | GraphBreak | FrameDetail | CompileEvent, options: RenderOptions
) -> str:
    """Describe what is known instead of a call where none of the program's own is."""
    if record.entered_from:
        return f"called from {options.clean(record.entered_from, 200)}, no line of which is yours"
    return NOT_RECORDED
