"""Details behind the counts of a receipt, as lines of text: causes, breaks, frames, compiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from compilediag.compare.keys import CauseKey, build_cause_key
from compilediag.compare.run_baseline import find_cause_finding, find_frame_finding
from compilediag.diagnosis.codes import REGISTER
from compilediag.diagnosis.findings import make_call_record
from compilediag.receipt.compiles import make_cause_record
from compilediag.receipt.finding_keys import normalize_function
from compilediag.receipt.sanitize import list_working_directories, sanitize
from compilediag.receipt.schema.compiles import (
    CompileEvent,
    EventCause,
    FindingRecord,
    FrameDetail,
    GraphBreak,
    Place,
)
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import FrameName, make_record
from compilediag.receipt.user_line import is_foreign, is_foreign_record
from compilediag.runs.watch import WatchResult
from compilediag.timeline.timeline import Compile
from compilediag.views.format import format_seconds, format_steps
from compilediag.views.place import describe_no_call, format_call
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


def list_failed_recompiles(run: WatchResult) -> tuple[CompileEvent, ...]:
    """List attempts to compile again that left no code, the one that hits the recompile limit
    included, in the form of a receipt's events: a receipt lists only what ended with code."""
    ids = run.diagnosis.finding_ids
    attempts = [
        make_record(
            CompileEvent,
            compile_,
            kind="recompile",
            graph_ops=None,
            guards=None,
            causes=tuple(
                make_cause_record(cause, ids) for cause in run.diagnosis.causes.get_causes(compile_)
            ),
            entered_at=make_call_record(compile_.entered_at),
            entered_from=compile_.entered_from or None,
            entries=(),
            entries_left_out=0,
        )
        for compile_ in run.timeline.recompiles
        if not compile_.produced
    ]
    return tuple(sanitize(attempts, Redactor(), list_working_directories(run.timeline))[0])


def render_attempts(run: WatchResult) -> list[str]:
    """Render every attempt to compile, backward ones and those without code included."""
    compiles = run.timeline.compiles
    frames = [make_record(FrameName, compile_.frame) for compile_ in compiles]
    named, _ = sanitize(frames, Redactor(), list_working_directories(run.timeline))
    return [format_attempt(compile_, name) for compile_, name in zip(compiles, named, strict=True)]


def format_attempt(compile_: Compile | CompileEvent, frame: FrameName) -> str:
    """Format one attempt to compile: what, where, its step and time."""
    what = f"{clean(compile_.compile_id, limit=40)} {_KINDS.get(compile_.kind, compile_.kind)}"
    where = _format_location(frame)
    return f"{what} · {where} · step {compile_.step} · {format_seconds(compile_.seconds)}"


_Occurrence = tuple[CompileEvent, EventCause]
"""One cause in one recompile."""


def render_causes(
    receipt: Receipt, events: Iterable[CompileEvent], only: tuple[str, str | None] | None = None
) -> list[str]:
    """Render every cause of these recompiles with its variable, place, guard, writers and fix; or
    the one of a rule and a variable `only`."""
    groups: dict[tuple[CauseKey, str | None], list[_Occurrence]] = {}
    for event in events:
        for cause in event.causes:
            if only is not None and only != (cause.rule, cause.variable):
                continue
            groups.setdefault((build_cause_key(cause), cause.kind), []).append((event, cause))
    return [line for group in groups.values() for line in _render_cause(receipt, group)]


def _render_cause(receipt: Receipt, group: Sequence[_Occurrence]) -> list[str]:
    event, first = group[0]
    causes = [cause for _, cause in group]
    rule = str(first.rule)
    known = (find_cause_finding(receipt, cause) for cause in causes)
    finding = next(filter(None, known), None)
    title = finding.title if finding is not None and finding.title else REGISTER[rule].sentence
    changes = [
        f"{clean(before, limit=_VALUE_CHARS)} → {clean(after, limit=_VALUE_CHARS)}"
        for before, after in dict.fromkeys((cause.expected, cause.actual) for cause in causes)
        if before is not None and after is not None
    ]
    more = f" (+{len(changes) - _MAX_CHANGES} more)" if len(changes) > _MAX_CHANGES else ""
    changed = ", ".join(changes[:_MAX_CHANGES]) + more
    variable = clean(first.variable, limit=_VALUE_CHARS) or "the variable is not known"
    # The line to change: the finding's; else the guard's.
    here = _format_place(first.file or "", first.line or 0, first.function or "")
    foreign = is_foreign(None, first.file)
    if finding is not None and finding.location is not None:
        here, foreign = _format_location(finding.location), is_foreign_record(finding)
    where = _add_call(event, here) if foreign else here
    events = {(e.process, e.epoch, e.compile_id): e for e, _ in group}.values()
    ids = ", ".join(clean(event.compile_id, limit=40) for event in events)
    when = format_steps([event.step for event in events if event.step is not None])
    cost = format_seconds(sum(event.seconds or 0.0 for event in events))
    guards = [guard for guard in dict.fromkeys(cause.guard for cause in causes) if guard]
    writers = {(w.function, w.file, w.line): w for cause in causes for w in cause.writers}
    return [
        f"{rule} {_clean(title)}: {variable}  {changed}".rstrip(),
        f"  {where} · {when} · {cost} · {'compile' if len(events) == 1 else 'compiles'} {ids}",
        *(f"  guard: {_clean(guard)}" for guard in guards[:_MAX_CHANGES]),
        *(
            f"  written by {clean(writer.function, limit=80)}, "
            f"{_format_place(writer.file, writer.line)}"
            for writer in writers.values()
        ),
        *(_render_fix(finding) or [f"  fix: see compilediag explain {rule}"]),
    ]


def _add_call(record: CompileEvent | GraphBreak | FrameDetail, here: str) -> str:
    """Put the call of the program's own that led there before a place in a library or torch."""
    call = record.entered_at
    if call is None:
        return f"{here} · {describe_no_call(record, RenderOptions())}"
    return f"{format_call(call, RenderOptions(width=_TEXT_CHARS))}, at {here}"


def render_breaks(receipt: Receipt, sites: Iterable[GraphBreak]) -> list[str]:
    """Render every graph break with its place, torch's reason and the fix."""
    lines: list[str] = []
    for site in sites:
        own = (finding for finding in receipt.findings if finding.id == site.finding)
        finding = next((finding for finding in own if finding.rule.startswith("CD2")), None)
        title = finding.title if finding is not None and finding.title else site.reason
        code = "graph break" if finding is None else finding.rule
        where = _format_place(site.file, site.line, site.function)
        where = _add_call(site, where) if is_foreign_record(site) else where
        lines += [f"{code} {_clean(title)}", f"  {where}", *_render_fix(finding)]
    return lines


def render_fallbacks(receipt: Receipt, frames: Iterable[FrameDetail]) -> list[str]:
    """Render every frame that ran without compiled code, and why."""
    lines: list[str] = []
    for frame in frames:
        file, line, function = frame.frame.file, frame.frame.line, frame.frame.function
        finding = find_frame_finding(receipt, file, line, normalize_function(function))
        reason = (frame.eager_reason or "torch gave no reason").strip().splitlines()[0]
        code = "CD904" if finding is None else finding.rule
        where = _format_location(frame.frame)
        lines += [
            f"{code} {_format_name(frame.frame)} ran eager: {_clean(reason)}",
            f"  {_add_call(frame, where) if is_foreign_record(frame) else where}",
            *_render_fix(finding),
        ]
    return lines


def render_frames(details: Iterable[FrameDetail]) -> list[str]:
    """Render every frame with how often it was compiled."""
    times = {0: "never", 1: "once", 2: "twice"}
    return [
        f"{_format_name(detail.frame)}: compiled "
        f"{times.get(detail.compiles, f'{detail.compiles} times')} · "
        f"{_format_location(detail.frame)}"
        for detail in details
    ]


def _render_fix(finding: FindingRecord | None) -> list[str]:
    if finding is None:
        return []
    note = [f"  note: {_clean(finding.fix.caveat)}"] if finding.fix.caveat else []
    return [f"  {finding.fix.label}: {_clean(finding.fix.summary)}", *note]


def _format_name(frame: FrameName) -> str:
    return clean(frame.function, limit=80) or "a frame"


def _format_location(where: FrameName | Place) -> str:
    return _format_place(where.file, where.line, where.function)


def _format_place(file: str, line: int, function: str = "") -> str:
    """`model.py:7 in forward`."""
    at = clean(file, limit=400) or "could not determine where"
    inside = f" in {clean(function, limit=80)}" if function else ""
    return f"{at}:{line}{inside}" if line else at + inside


def _clean(text: str) -> str:
    return clean(text, limit=_TEXT_CHARS)
