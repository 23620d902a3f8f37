"""Compiles, folded from torch's metrics rows, each with the recompile torch recorded before it;
their warm calls and memory; the compile caches of each process: lookups, what keys are of, what was
read."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from compilediag.timeline.process import ProcessEvents, extend_record
from compilediag_harness import wire

NO_ROW = "no metrics row: the compile did not end"
NO_QUESTION = "torch's question was not heard: only its first reason is known"

LIMIT_WARNING = re.compile(r"torch\._dynamo hit config\.\w{0,32}(?:recompile|cache_size)_limit\b")
"""How torch begins its warning that a frame is at its limit."""

_AT_LIMIT = re.compile(
    r"recompile[_ ]limit (?:reached|exceeded)|RecompileLimit|accumulated_recompile_limit"
)


class FrameId(NamedTuple):
    """One frame of one process: torch's frame id ("0" of "0/1") within an epoch."""

    process: int
    epoch: int
    frame_id: str


class CompileId(NamedTuple):
    """One compile of one process: torch's ids start again at 0/0 after a reset."""

    process: int
    epoch: int
    compile_id: str

    @property
    def frame(self) -> FrameId:
        """The frame that it is of."""
        return FrameId(self.process, self.epoch, parse_frame_id(self.compile_id))


def get_compile_id(
    event: wire.AttemptEvent | wire.CacheLookedUp | wire.CudagraphRecorded,
) -> CompileId:
    """Get the id of the compile that an event is of."""
    return CompileId(event.process, event.epoch, event.compile_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompile(wire.Recompiled):
    """torch asked why no cache entry of a frame fits, and compiled it again (or hit the limit)."""

    seconds: float
    """Of the compile it caused, with its lazy backward, without our analysis; 0 at the limit."""
    produced: bool
    """It ended with guarded code: only then it counts as a recompile."""
    entered_at: wire.UserCall | None = None
    entered_from: str = ""
    """Both as in the compile."""

    @property
    def id(self) -> CompileId:
        return get_compile_id(self)

    @property
    def has_question(self) -> bool:
        """False: only the metrics row shows it, torch's question did not arrive."""
        return self.problem != NO_QUESTION


@dataclass(frozen=True, slots=True, kw_only=True)
class Compile(wire.Compiled):
    """One attempt to compile one frame (a metrics row of torch; backward rows included)."""

    kind: str
    """"first", "recompile", "limit" (the attempt that hits the limit), "failed", "backward"."""
    recompile: Recompile | None = None
    """torch's question before it, where there was one."""

    @property
    def id(self) -> CompileId:
        return get_compile_id(self)

    @property
    def key(self) -> FrameId:
        return self.id.frame

    @property
    def has_row(self) -> bool:
        """False: torch asked why to recompile, and raised or died before the compile ended."""
        return self.fail_reason != NO_ROW


def parse_frame_id(compile_id: str) -> str:
    """Parse the frame's part of a compile id: "0" of "0/1", "!1/1" of "!1/1/0", "0" of "0/0_1"."""
    head, _, _ = compile_id.rpartition("/")
    return head or compile_id


def collect_compiles(part: ProcessEvents) -> list[Compile]:
    """Collect the attempts of a process, each with torch's `Recompiled` before it, in order."""
    events = {(event.epoch, event.compile_id): event for event in part.get_all(wire.Recompiled)}
    rows, torch = select_rows(part, ahead=False), part.get_last(wire.TorchSeen)
    # Lazily compiled backwards bear the compile id of their forward.
    backward_s = defaultdict[tuple[int, str], float](float)
    for row in rows:
        if not row.forward:
            backward_s[row.epoch, row.compile_id] += row.seconds
    has_rows = torch is None or torch.hooks.get("metrics_rows", True)
    # Rows made of a text log have no graph either: there a break means nothing for its frame.
    broken_ids = {
        (graph_break.epoch, graph_break.compile_id)
        for graph_break in part.get_all(wire.GraphBroke)
        if has_rows
    }
    made: list[Compile] = []
    for reported in rows:
        row, key = reported, (reported.epoch, reported.compile_id)
        if row.forward and row.guarded and row.graph_ops is None and key in broken_ids:
            # A frame given up at a break in a loop is not compiled, though 2.7 calls it guarded: it
            # has a break and no graph, not even an empty one. Later versions report it themselves.
            reason = row.fail_reason or "a graph break in a loop: the whole frame runs eager"
            row = replace(row, guarded=False, fail_reason=reason)
        event = events.pop(key, None) if row.forward else None
        made.append(_make_compile(row, event, backward_s[key]))
    # A question without a row: the process died, or the compile raised before its row was made.
    starts = {(start.epoch, start.compile_id): start for start in part.get_all(wire.CompileStarted)}
    for key, pending in events.items():
        at = (pending.t, pending.step, pending.compile_id, pending.epoch, pending.frame)
        row = replace(make_unmeasured(*at), fail_reason=NO_ROW, process=pending.process)
        if (start := starts.get(key)) is not None:
            row = replace(row, entered_at=start.entered_at, entered_from=start.entered_from)
        made.append(_make_compile(row, pending, 0.0))
    made.sort(key=lambda attempt: attempt.t)
    return made


def make_unmeasured(
    t: float, step: int, compile_id: str, epoch: int, frame: wire.Location
) -> wire.Compiled:
    """Make an attempt of which torch gave no metrics, and that ended without guarded code."""
    known = (t, step, compile_id, epoch, frame)
    return wire.Compiled(*known, True, False, 0.0, None, None, None, None, None, None, None)


def select_rows(part: ProcessEvents, *, ahead: bool) -> list[wire.Compiled]:
    """Select the metrics rows of frames that run in this process, or of what was compiled ahead.

    torch says so nowhere. A strict export has a row without compile id and code; AOTInductor has
    one without code, under the id that the next frame will bear too. So has the attempt of a frame
    at the limit, but for that torch recorded a recompile, and it failed.
    """
    rows = part.get_all(wire.Compiled)
    questioned = {(event.epoch, event.compile_id) for event in part.get_all(wire.Recompiled)}
    framed = {(row.epoch, parse_frame_id(row.compile_id)) for row in rows if row.frame.file}

    def is_ahead(row: wire.Compiled) -> bool:
        if row.exported or row.frame.file or not row.forward:
            return row.exported
        if (row.epoch, row.compile_id) in questioned or _is_at_limit(row):
            return False
        failed_in_frame = (row.epoch, parse_frame_id(row.compile_id)) in framed
        return not row.compile_id or row.fail_type is None or not failed_in_frame

    return [row for row in rows if is_ahead(row) == ahead]


def _make_compile(row: wire.Compiled, event: wire.Recompiled | None, backward_s: float) -> Compile:
    recompile = None
    if row.forward and event is None and row.recompile_reason is not None:
        # The row's own reason stands for it.
        at = (row.t, row.step, row.compile_id, row.epoch, row.frame)
        reasons = (str(row.recompile_reason),)
        event = wire.Recompiled(*at, reasons, (), 0.0, NO_QUESTION, process=row.process)
    if row.forward and event is not None:
        recompile = extend_record(
            event,
            Recompile,
            seconds=row.seconds + backward_s if row.guarded else 0.0,
            produced=row.guarded,
            entered_at=row.entered_at,
            entered_from=row.entered_from,
        )
    kind = "first" if recompile is None else "recompile"
    if not row.forward:
        kind = "backward"
    elif _is_at_limit(row):
        kind = "limit"
    elif not row.guarded:
        kind = "failed"
    return extend_record(row, Compile, kind=kind, recompile=recompile)


def _is_at_limit(row: wire.Compiled) -> bool:
    texts = (row.fail_type, row.fail_reason)
    return any(_AT_LIMIT.search(text) for text in texts if text is not None)


@dataclass(frozen=True, slots=True)
class TimedWarmCalls:
    """Calls of one callable in which nothing compiled."""

    process: int
    function: wire.Location
    calls: int
    runs: tuple[tuple[wire.Location, int], ...]
    """How often the graph of each frame ran in all of them."""


def collect_warm_calls(process: int, events: Sequence[wire.WarmCallsTimed]) -> list[TimedWarmCalls]:
    """Collect the timed warm calls of one process: its newest record has all."""
    newest = events[-1]
    runs: dict[int, list[tuple[wire.Location, int]]] = {}
    for caller, frame, count in zip(newest.callers, newest.frames, newest.runs, strict=False):
        runs.setdefault(caller, []).append((frame, count))
    columns = zip(newest.functions, newest.calls, strict=False)
    return [
        TimedWarmCalls(process, function, calls, tuple(runs.get(index, ())))
        for index, (function, calls) in enumerate(columns)
    ]


CACHE_WRITES = "cache_writes"
"""The hook without which a record does not show what was written."""


@dataclass(frozen=True, slots=True)
class ProcessCaches:
    """The compile caches of one process."""

    process: int
    lookups: tuple[wire.CacheLookedUp, ...] = ()
    settings: Mapping[str, tuple[wire.Component, ...]] | None = None
    """Settings of the compiler, by the digest that lookups name."""
    writes: tuple[wire.CacheWritten, ...] | None = None
    """None where they were not seen: a trace does not have them."""
    folder: wire.CacheFolderRead | None = None

    def get_components(self, lookup: wire.CacheLookedUp) -> dict[str, str]:
        """Get everything that a key is made of, by name; empty where torch did not record it."""
        return {**dict(lookup.components), **dict((self.settings or {}).get(lookup.settings, ()))}


def collect_caches(part: ProcessEvents) -> list[ProcessCaches]:
    """Collect the caches of a process; empty where it looked nothing up."""
    lookups, writes = part.get_all(wire.CacheLookedUp), part.get_all(wire.CacheWritten)
    torch = part.get_last(wire.TorchSeen)
    if not lookups and not writes:
        return []
    settings = {
        settings_read.digest: settings_read.components
        for settings_read in part.get_all(wire.CacheSettingsRead)
    }
    seen = tuple(writes) if torch is None or torch.hooks.get(CACHE_WRITES, True) else None
    folder = part.get_last(wire.CacheFolderRead)
    return [ProcessCaches(part.index, tuple(lookups), settings, seen, folder)]
