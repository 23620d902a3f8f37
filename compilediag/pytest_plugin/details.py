"""Details behind the counts of a receipt, as lines of text: causes, breaks, frames, compiles.

Text of the program under test goes through `views.text.clean`; only what is longer than a terminal
can bear is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
from compilediag.timeline.timeline import Compile
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
    """List attempts to compile again that left no code, the one that hits the recompile limit
    included, in the form of a receipt's events: a receipt lists only what ended with code."""
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
    """Render every attempt to compile, backward ones and those without code included."""
    found = run.timeline.compiles
    frames = [record_from(FrameName, item.frame) for item in found]
    named, _ = sanitized(frames, Redactor(), working_directories(run.timeline))
    return [_attempt(item, frame) for item, frame in zip(found, named, strict=True)]


def compiles(events: Iterable[CompileEvent]) -> list[str]:
    """Render every compile that ended with code."""
    return [_attempt(item, item.frame) for item in events]


def _attempt(item: Compile | CompileEvent, frame: FrameName) -> str:
    what = f"{clean(item.compile_id, limit=40)} {_KINDS.get(item.kind, item.kind)}"
    return f"{what} · {_at(frame)} · step {item.step} · {seconds(item.seconds)}"


_Occurrence = tuple[CompileEvent, EventCause]
"""One cause in one recompile."""


def causes(
    receipt: Receipt, events: Iterable[CompileEvent], only: tuple[str, str | None] | None = None
) -> list[str]:
    """Render every cause of these recompiles with its variable, place, guard, writers and fix; or
    the one of a rule and a variable `only`."""
    groups: dict[tuple[CauseKey, str | None], list[_Occurrence]] = {}
    for event in events:
        for cause in event.causes:
            if only is not None and only != (cause.rule, cause.variable):
                continue
            groups.setdefault((cause_key(cause), cause.kind), []).append((event, cause))
    return [line for group in groups.values() for line in _cause(receipt, group)]


def _cause(receipt: Receipt, group: Sequence[_Occurrence]) -> list[str]:
    event, first = group[0]
    found = [cause for _, cause in group]
    rule = str(first.rule)
    finding = _finding(receipt, next((cause.finding for cause in found if cause.finding), None))
    title = finding.title if finding is not None and finding.title else info(rule).sentence
    changes = [
        f"{clean(before, limit=_VALUE_CHARS)} → {clean(after, limit=_VALUE_CHARS)}"
        for before, after in dict.fromkeys((cause.expected, cause.actual) for cause in found)
        if before is not None and after is not None
    ]
    more = f" (+{len(changes) - _MAX_CHANGES} more)" if len(changes) > _MAX_CHANGES else ""
    changed = ", ".join(changes[:_MAX_CHANGES]) + more
    variable = clean(first.variable, limit=_VALUE_CHARS) or "the variable is not known"
    # The line to change: the finding's; else the guard's, or the frame's where torch gave none.
    if finding is not None and finding.location is not None:
        here, foreign = _at(finding.location), is_foreign_record(finding)
    elif first.file is not None:
        here = _place(first.file, first.line or 0, first.function or "")
        foreign = is_foreign(None, first.file)
    else:
        here, foreign = _at(event.frame), is_foreign(None, event.frame.file)
    where = _behind(event, here) if foreign else here
    events = {(e.process, e.epoch, e.compile_id): e for e, _ in group}.values()
    ids = ", ".join(clean(each.compile_id, limit=40) for each in events)
    when = steps([each.step for each in events if each.step is not None])
    cost = seconds(sum(each.seconds or 0.0 for each in events))
    guards = [guard for guard in dict.fromkeys(cause.guard for cause in found) if guard]
    writers = {(w.function, w.file, w.line): w for cause in found for w in cause.writers}
    return [
        f"{rule} {_text(title)}: {variable}  {changed}".rstrip(),
        f"  {where} · {when} · {cost} · {'compile' if len(events) == 1 else 'compiles'} {ids}",
        *(f"  guard: {_text(guard)}" for guard in guards[:_MAX_CHANGES]),
        *(
            f"  written by {clean(writer.function, limit=80)}, {_place(writer.file, writer.line)}"
            for writer in writers.values()
        ),
        *(_fix(finding) or [f"  fix: see compilediag explain {rule}"]),
    ]


def _behind(record: CompileEvent | GraphBreak | FrameDetail, here: str) -> str:
    """Put the call of the program's own that led there before a place in a library or torch."""
    call = record.entered_at
    if call is None:
        return f"{here} · {no_call(record, RenderOptions())}"
    return f"{called(call, RenderOptions(width=_TEXT_CHARS))}, at {here}"


def breaks(receipt: Receipt, sites: Iterable[GraphBreak]) -> list[str]:
    """Render every graph break with its place, torch's reason and the fix."""
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
    """Render every frame that ran without compiled code, and why."""
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
    """Render every frame with how often it was compiled."""
    times = {0: "never", 1: "once", 2: "twice"}
    return [
        f"{_name(item.frame)}: compiled {times.get(item.compiles, f'{item.compiles} times')} · "
        f"{_at(item.frame)}"
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
    at = clean(file, limit=400) or "could not determine where"
    inside = f" in {clean(function, limit=80)}" if function else ""
    return f"{at}:{line}{inside}" if line else at + inside


def _text(text: str) -> str:
    return clean(text, limit=_TEXT_CHARS)
