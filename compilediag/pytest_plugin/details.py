"""The details behind the counts of a receipt, as lines of text: causes, breaks, frames, compiles.

Text of the program under test goes through `views.text.clean`; only what is longer than a terminal
can bear is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from compilediag.compare.keys import CauseKey, cause_key, function_key
from compilediag.compare.run_baseline import finding_of_frame
from compilediag.diagnosis.codes import info
from compilediag.diagnosis.findings import entered_record
from compilediag.receipt.compiles import cause_record
from compilediag.receipt.sanitize import sanitized, working_directories
from compilediag.receipt.schema.compiles import (
    CompileEvent,
    EventCause,
    FindingRecord,
    FrameDetail,
    GraphBreak,
    Place,
)
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import FrameName, record_from
from compilediag.receipt.user_line import is_foreign, is_foreign_record
from compilediag.runs.watch import WatchResult
from compilediag.views.format import seconds, steps
from compilediag.views.place import called, no_call
from compilediag.views.style import RenderOptions
from compilediag.views.text import clean
from compilediag_harness.redaction.redactor import Redactor

_MAX_CHANGES = 8
_VALUE_CHARS = 120
_TEXT_CHARS = 2000
_KINDS = {
    "first": "compiled for the first time",
    "recompile": "compiled again",
    "limit": "the recompile limit was hit",
    "failed": "could not be compiled",
    "backward": "backward compiled",
}


def failed_recompiles(run: WatchResult) -> tuple[CompileEvent, ...]:
    """Attempts to compile again that left no code, the one that hits the recompile limit included,
    in the form of a receipt's events: a receipt lists only what ended with code."""
    ids = run.diagnosis.finding_ids
    attempts = [
        record_from(
            CompileEvent,
            item,
            kind="recompile",
            graph_ops=None,
            guards=None,
            causes=tuple(cause_record(found, ids) for found in run.diagnosis.causes.of(item)),
            entered_at=entered_record(item.entered_at),
            entered_from=item.entered_from or None,
            entries=(),
            entries_left_out=0,
        )
        for item in run.timeline.recompiles
        if not item.produced
    ]
    return tuple(sanitized(attempts, Redactor(), working_directories(run.timeline))[0])


def attempts(run: WatchResult) -> list[str]:
    """Every attempt to compile, backward ones and those without code included."""
    found = run.timeline.compiles
    frames = [record_from(FrameName, item.frame) for item in found]
    named, _ = sanitized(frames, Redactor(), working_directories(run.timeline))
    return [
        _attempt(item.compile_id, item.kind, frame, item.step, item.seconds)
        for item, frame in zip(found, named, strict=True)
    ]


def compiles(events: Iterable[CompileEvent]) -> list[str]:
    """Every compile that ended with code."""
    return [
        _attempt(item.compile_id, item.kind, item.frame, item.step, item.seconds) for item in events
    ]


def _attempt(
    compile_id: str, kind: str, frame: FrameName, step: int | None, cost_s: float | None
) -> str:
    what = f"{clean(compile_id, limit=40)} {_KINDS.get(kind, kind)}"
    return f"{what} · {_at(frame)} · step {step} · {seconds(cost_s)}"


class _Occurrence(NamedTuple):
    """One cause in one recompile."""

    event: CompileEvent
    cause: EventCause


def causes(
    receipt: Receipt, events: Iterable[CompileEvent], only: tuple[str, str | None] | None = None
) -> list[str]:
    """Every cause of these recompiles with its variable, place, guard, writers and fix; or the one
    of a rule and a variable `only`."""
    groups: dict[tuple[CauseKey, str | None], list[_Occurrence]] = {}
    for event in events:
        for cause in event.causes:
            if only is not None and only != (cause.rule, cause.variable):
                continue
            group = groups.setdefault((cause_key(cause), cause.kind), [])
            group.append(_Occurrence(event, cause))
    return [line for group in groups.values() for line in _cause(receipt, group)]


def _cause(receipt: Receipt, group: Sequence[_Occurrence]) -> list[str]:
    first = group[0].cause
    rule = str(first.rule)
    finding = _finding(receipt, next((o.cause.finding for o in group if o.cause.finding), None))
    title = finding.title if finding is not None and finding.title else info(rule).sentence
    pairs = dict.fromkeys((item.cause.expected, item.cause.actual) for item in group)
    changes = [_change(*pair) for pair in pairs if None not in pair]
    more = f" (+{len(changes) - _MAX_CHANGES} more)" if len(changes) > _MAX_CHANGES else ""
    changed = ", ".join(changes[:_MAX_CHANGES]) + more
    variable = clean(first.variable, limit=_VALUE_CHARS) or "the variable is not known"
    events = {(o.event.process, o.event.epoch, o.event.compile_id): o.event for o in group}
    ids = ", ".join(clean(event.compile_id, limit=40) for event in events.values())
    when = steps([event.step for event in events.values() if event.step is not None])
    cost = seconds(sum(event.seconds or 0.0 for event in events.values()))
    word = "compile" if len(events) == 1 else "compiles"
    guards = [guard for guard in dict.fromkeys(item.cause.guard for item in group) if guard]
    writers = {(w.function, w.file, w.line): w for item in group for w in item.cause.writers}
    return [
        f"{rule} {_text(title)}: {variable}  {changed}".rstrip(),
        f"  {_line_to_change(group[0], finding)} · {when} · {cost} · {word} {ids}",
        *(f"  guard: {_text(guard)}" for guard in guards[:_MAX_CHANGES]),
        *(
            f"  written by {clean(writer.function, limit=80)}, {_place(writer.file, writer.line)}"
            for writer in writers.values()
        ),
        *(_fix(finding) or [f"  fix: see compilediag explain {rule}"]),
    ]


def _line_to_change(found: _Occurrence, finding: FindingRecord | None) -> str:
    """The finding's; else the guard's, or the frame's where torch gave no line."""
    event, cause = found
    if finding is not None and finding.location is not None:
        here, foreign = _at(finding.location), is_foreign_record(finding)
    elif cause.file is not None:
        here = _place(cause.file, cause.line or 0, cause.function or "")
        foreign = is_foreign(None, cause.file)
    else:
        here, foreign = _at(event.frame), is_foreign(None, event.frame.file)
    return _behind(event, here) if foreign else here


def _behind(record: CompileEvent | GraphBreak | FrameDetail, here: str) -> str:
    """A place in a library or in torch behind the call of the program's own that led there."""
    call = record.entered_at
    if call is None:
        return f"{here} · {no_call(record, RenderOptions())}"
    return f"{called(call, RenderOptions(width=_TEXT_CHARS))}, at {here}"


def breaks(receipt: Receipt, sites: Iterable[GraphBreak]) -> list[str]:
    """Every graph break with its place, torch's reason and the fix."""
    lines: list[str] = []
    for site in sites:
        finding = _finding(receipt, site.finding)
        if finding is not None and not finding.rule.startswith("CD2"):
            finding = None
        title = finding.title if finding is not None and finding.title else site.reason
        code = "graph break" if finding is None else finding.rule
        where = _place(site.file, site.line, site.function)
        where = _behind(site, where) if is_foreign_record(site) else where
        lines += [f"{code} {_text(title)}", f"  {where}", *_fix(finding)]
    return lines


def eager(receipt: Receipt, frames: Iterable[FrameDetail]) -> list[str]:
    """Every frame that ran without compiled code, and why."""
    lines: list[str] = []
    for frame in frames:
        file, line, function = frame.frame.file, frame.frame.line, frame.frame.function
        finding = finding_of_frame(receipt, file, line, function_key(function))
        reason = (frame.eager_reason or "torch gave no reason").strip().splitlines()[0]
        code = "CD904" if finding is None else finding.rule
        where = _at(frame.frame)
        lines += [
            f"{code} {_name(frame.frame)} ran eager: {_text(reason)}",
            f"  {_behind(frame, where) if is_foreign_record(frame) else where}",
            *_fix(finding),
        ]
    return lines


def frames(details: Iterable[FrameDetail]) -> list[str]:
    """Every frame with how often it was compiled."""
    return [
        f"{_name(item.frame)}: compiled {_times(item.compiles)} · {_at(item.frame)}"
        for item in details
    ]


def _finding(receipt: Receipt, finding_id: str | None) -> FindingRecord | None:
    return next((item for item in receipt.findings if item.id == finding_id), None)


def _fix(finding: FindingRecord | None) -> list[str]:
    if finding is None:
        return []
    note = [f"  note: {_text(finding.fix.caveat)}"] if finding.fix.caveat else []
    return [f"  fix: {_text(finding.fix.summary)}", *note]


def _name(frame: FrameName) -> str:
    return clean(frame.function, limit=80) or "a frame"


def _at(where: FrameName | Place) -> str:
    return _place(where.file, where.line, where.function)


def _place(file: str, line: int, function: str = "") -> str:
    """`model.py:7 in forward`."""
    shown = clean(file, limit=400) or "could not determine where"
    return (
        shown
        + (f":{line}" if line else "")
        + (f" in {clean(function, limit=80)}" if function else "")
    )


def _text(text: str) -> str:
    return clean(text, limit=_TEXT_CHARS)


def _change(expected: str | None, actual: str | None) -> str:
    before, after = (clean(value, limit=_VALUE_CHARS) for value in (expected, actual))
    return f"{before} → {after}"


def _times(number: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(number, f"{number} times")
