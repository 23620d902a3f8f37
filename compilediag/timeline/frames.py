"""Frames and graph breaks of a run, and what counts as a frame, compile, recompile, graph, break.

Each frame is compiled, eager, skipped or about to recompile. torch's reports of breaks are folded
into one site for each file and line. What is counted follows docs/reference/receipt.md: receipts,
telemetry, ranks, tests and the live line all count by these definitions.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from compilediag.receipt.schema.compiles import Counts
from compilediag.timeline.compiles import Compile, CompileId, FrameId
from compilediag.timeline.ownership import classify_ownership
from compilediag.timeline.process import ProcessEvents
from compilediag_harness import wire

_BREAK_AT = re.compile(r"user code at (?P<file>[^\n]+):(?P<line>\d+)\s*(?:\n|$)")
_ATTEMPT = re.compile(r"_\d+$")
_STACK_CODE = re.compile(r'File "([^"\n]+)", line (\d+), in ([^\n]+)\n {3,8}(?! *File ")([^\n]*)')
_STACK_LINE = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>[^\n]+)')


class BreakLine(NamedTuple):
    """A graph break is one line of the program, however often torch reports it."""

    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakSite(wire.Location):
    """A graph break by place: torch reports one site again at each recompile and restart."""

    text: str
    """torch's whole report, the first one."""
    count: int
    """Reports, repeats included."""
    compile_ids: tuple[str, ...]
    first_step: int
    steps: tuple[int, ...] = ()
    """Steps of all reports."""
    attempts: frozenset[CompileId] = frozenset()
    """The compiles that met it; a restart belongs to its compile."""
    processes: tuple[int, ...] = ()
    """Indexes of the processes that reported it, ascending."""
    branch: wire.UserCall | None = None
    entered_at: wire.UserCall | None = None
    entered_from: str = ""
    """Of the compile that reported it first, as in `Compile`; of a break in a library the program's
    own line that was compiled with it, where there is one."""
    others: tuple[wire.UserCall, ...] = ()
    """Such lines of later reports, where torch's own line is one for all of them."""

    @property
    def at(self) -> BreakLine:
        return BreakLine(self.file, self.line)


def collect_breaks(
    parts: Iterable[ProcessEvents], compiles: Iterable[Compile] = (), user_roots: Sequence[str] = ()
) -> tuple[BreakSite, ...]:
    """Collect breaks by file and line: repeats at a recompile or a restart are one site.
    `compiles`: of all these processes; `user_roots`: folders of the user's own files."""
    attempts = {attempt.id: attempt for attempt in compiles if attempt.forward}
    sites: dict[BreakLine, list[tuple[int, str, wire.GraphBroke]]] = {}
    for part in parts:
        for event in part.get_all(wire.GraphBroke):
            place = parse_break_place(event.text)
            if place is not None:
                reports = sites.setdefault(BreakLine(place.file, place.line), [])
                reports.append((part.index, place.function, event))
    merged: list[BreakSite] = []
    for at, reports in sites.items():
        first = reports[0][2]
        ids = [
            CompileId(process, event.epoch, _ATTEMPT.sub("", event.compile_id))
            for process, _, event in reports
        ]
        compiled = next((attempts[key] for key in ids if key in attempts), None)
        call, thread = (compiled.entered_at, compiled.entered_from) if compiled else (None, "")
        texts = (event.text for _, _, event in reports if event is first or not event.repeated)
        calls = [_find_user_call(at, text, user_roots) for text in texts]
        own = calls[0]
        if own is not None and (call is None or (own.file, own.line) != (call.file, call.line)):
            call, thread = own, ""
        functions = [function for _, function, _ in reports if function]
        if not functions and compiled and (compiled.frame.file, compiled.frame.line) == at:
            functions = [compiled.frame.function]  # torch names no line of it
        site = BreakSite(
            *(at.file, at.line, functions[0] if functions else ""),
            text=first.text,
            count=len(reports),
            compile_ids=tuple(dict.fromkeys(event.compile_id for _, _, event in reports)),
            first_step=first.step,
            steps=tuple(dict.fromkeys(event.step for _, _, event in reports)),
            attempts=frozenset(ids),
            processes=tuple(dict.fromkeys(process for process, _, _ in reports)),
            branch=first.branch,
            entered_at=call,
            entered_from=thread,
            others=tuple(dict.fromkeys(filter(None, calls)))[1:],
        )
        merged.append(site)
    return tuple(merged)


def _find_user_call(at: BreakLine, text: str, user_roots: Sequence[str]) -> wire.UserCall | None:
    """Find the innermost line of the program's own in the report of a break in a library."""
    if classify_ownership(at.file, user_roots) == "user":
        return None
    above = text.split("\nTraceback (most recent call last)", maxsplit=1)[0]
    for file, line, name, source in reversed(_STACK_CODE.findall(above)):
        if classify_ownership(file, user_roots) == "user":
            return wire.UserCall(file, int(line), name.strip(), source.strip())
    return None


@lru_cache(maxsize=1024)
def parse_break_place(text: str) -> wire.Location | None:
    """Parse where torch says a graph break is: its headline, else the innermost line of its stack.

    Cached: torch repeats a report at each recompile, and ranks break at the same places.
    """
    above = text.split("\nTraceback (most recent call last)", maxsplit=1)[0]
    stack = [
        wire.Location(matched["file"], int(matched["line"]), matched["function"].strip())
        for matched in _STACK_LINE.finditer(above)
    ]
    headline = _BREAK_AT.search(text.split("\n", 1)[0] + "\n")
    if headline is None:
        return stack[-1] if stack else None
    file, line = headline["file"], int(headline["line"])
    same = [place for place in stack if place.file == file and place.line == line]
    return wire.Location(file, line, same[-1].function if same else "")


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame that Dynamo attempted, over all its compiles."""

    key: FrameId
    where: wire.Location
    compiles: int
    """Attempts that ended with guarded code."""
    graphs: int
    guards: int | None
    """Guards of the newest compile."""
    guard_eval_us: float | None
    limit: int | None
    """`recompile_limit` in force."""
    limit_hit_step: int | None
    ran_eager: bool
    """Skipped, or over the limit: some call of it ran without guarded code."""
    eager_reason: str | None
    raised_at_limit: bool = False
    """With `fullgraph=True` torch raises at the limit: the call does not run at all."""
    entered_at: wire.UserCall | None = None
    entered_from: str = ""
    """Both as in `Compile`: of the call that ran eager, else of the first one."""


def collect_frames(compiles: Sequence[Compile], parts: Iterable[ProcessEvents] = ()) -> list[Frame]:
    """Collect each frame that was attempted, in the order of their first attempts. `parts`: the
    events of these processes, which tell of frames that Dynamo gave up."""
    skips = (skip for part in parts for skip in part.get_all(wire.FrameSkipped))
    skipped = {(skip.process, skip.frame) for skip in skips}
    grouped: dict[FrameId, list[Compile]] = {}
    for attempt in compiles:
        if attempt.forward:
            grouped.setdefault(attempt.key, []).append(attempt)
    # The row of a lazily compiled backward has the id of its forward, and comes after it.
    rows = {attempt.id: attempt for attempt in compiles}
    return [_make_frame(attempts, rows, skipped) for attempts in grouped.values()]


def _make_frame(
    attempts: Sequence[Compile],
    rows: Mapping[CompileId, Compile],
    skipped: Container[tuple[int, wire.Location]],
) -> Frame:
    guarded = [attempt for attempt in attempts if attempt.guarded]
    own = [rows[attempt.id] for attempt in guarded]
    at_limit = next((attempt for attempt in attempts if attempt.kind == "limit"), None)
    raised = at_limit is not None and "FailOnRecompileLimitHit" in (at_limit.fail_type or "")
    # One that has compiled code ran eager where Dynamo says so: it may have raised instead.
    last = attempts[-1]
    given_up = last.kind == "failed" and (last.process, last.frame) in skipped
    over = last.interrupted or (guarded and not given_up)  # nothing ran in its place
    eager = (None if raised else at_limit) or (None if over else last)
    shown = at_limit or eager or attempts[0]
    reason = None
    if eager is not None:
        reason = eager.fail_reason or eager.fail_type or "torch gave no reason"
    return Frame(
        key=last.key,
        where=attempts[0].frame,
        compiles=len(guarded),
        graphs=sum(1 for attempt in guarded if attempt.graph_ops),
        guards=guarded[-1].guards if guarded else None,
        guard_eval_us=own[-1].guard_eval_us if own else None,
        limit=own[0].limit if own else None,
        limit_hit_step=at_limit.step if at_limit else None,
        ran_eager=eager is not None,
        eager_reason=reason,
        raised_at_limit=raised,
        entered_at=shown.entered_at,
        entered_from=shown.entered_from,
    )


def collect_skipped(part: ProcessEvents) -> Iterable[wire.FrameSkipped]:
    """Collect skipped frames that have no metrics row of their own, each once."""
    rows = {(row.frame.file, row.frame.function) for row in part.get_all(wire.Compiled)}
    skipped: dict[tuple[str, str], wire.FrameSkipped] = {}
    for event in part.get_all(wire.FrameSkipped):
        key = (event.frame.file, event.frame.function)
        if key not in rows:
            skipped.setdefault(key, event)
    return skipped.values()


def is_compile(attempt: Compile) -> bool:
    """True if an attempt counts as a compile."""
    return attempt.forward and attempt.guarded


def is_recompile(attempt: Compile) -> bool:
    """True if an attempt counts as a recompile too."""
    return attempt.recompile is not None and attempt.recompile.produced


def compute_counts(
    frames: Iterable[Frame], compiles: Iterable[Compile], breaks: Iterable[BreakSite]
) -> Counts:
    """Compute the counts of a run, or of some of its processes, by the definitions above."""
    counted = [attempt for attempt in compiles if is_compile(attempt)]
    attempted = tuple(frames)
    return Counts(
        frames=len(attempted),
        compiles=len(counted),
        recompiles=sum(is_recompile(attempt) for attempt in counted),
        graphs=sum(bool(attempt.graph_ops) for attempt in counted),
        graph_breaks=len({site.at for site in breaks}),
        eager_fallbacks=sum(frame.ran_eager for frame in attempted),
        recompile_limit_hits=sum(frame.limit_hit_step is not None for frame in attempted),
    )
