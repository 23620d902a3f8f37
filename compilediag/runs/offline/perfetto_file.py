"""`show --perfetto FILE`: the timeline of a run as Chrome trace JSON, which ui.perfetto.dev and
chrome://tracing open.

Times come from the journals, causes from the receipt; torch's own timeline, as tlparse wrote it, is
put on the same clock. Every process has a number of its own, every row is a thread of it, numbered
in the order in which it is to be drawn. Times are microseconds since the first process attached.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import msgspec

from compilediag.compare.gate.baseline_file import write_whole
from compilediag.diagnosis.figures.compile_costs import sum_compile_seconds
from compilediag.errors import UsageError
from compilediag.readers.journal import ProcessJournal, read_run
from compilediag.readers.lines import parse_unix_s
from compilediag.readers.storage import open_regular
from compilediag.receipt.sanitize import sanitize
from compilediag.runs.run_directory import check_file, list_reports
from compilediag.timeline.frames import parse_break_place
from compilediag.timeline.timeline import Compile, Timeline, fold, select_spans
from compilediag.views.format import pluralize
from compilediag.views.steps import TIMED
from compilediag_harness import wire
from compilediag_harness.redaction.redactor import Redactor, list_secret_values

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import CompileEvent
    from compilediag.receipt.schema.receipt import Receipt

PRODUCER = "compilediag show --perfetto"
MAX_BYTES = 512 << 20
"""A larger timeline of torch's is left out: viewers do not open it either."""
CLOCK_NOISE_US = 0.002
"""Two times read as one and stored as floating point differ by no more after rounding."""
FOREIGN_KINDS = ("B", "E", "X", "i", "I", "C")
"""Begin, end, whole, instant (two spellings) and counter: what torch writes."""
RECORDING = "CUDAGRAPH_RECORDING"
"""torch's name of the trigger of `CompileStarted` when a CUDA graph is about to be recorded."""

TraceEvent = dict[str, Any]


def write_perfetto(receipt: Receipt, receipt_path: str, file: str) -> list[str]:
    """Write the timeline of a run for ui.perfetto.dev; return sentences for the user about it.

    Raises:
        UsageError: the run has no journals, or `file` holds something else.
        OutputUnwritable: `file` cannot be written; an older one is left as it was.
    """
    check_file(file, PRODUCER)
    folder, notes = os.path.dirname(receipt_path), list[str]()
    journals = read_run(folder)
    if not any(journal.events for journal in journals):
        raise UsageError(
            f"{folder or '.'} has no journals: a timeline needs the times in them, which a receipt "
            "alone does not hold; name the folder of the run"
        )
    starts_ns = [_compute_start_ns(journal) for journal in journals]
    first_ns = min((ns for ns in starts_ns if ns is not None), default=None)
    origins_ns = [0 if ns is None else ns - (first_ns or 0) for ns in starts_ns]
    if lost := sum(sum(journal.lost.values()) for journal in journals):
        notes.append(f"{lost} records of the journals are lost and missing in the timeline")
    if None in starts_ns:
        notes.append("a process whose start is not known is drawn from the start of the run")
    events = list_events(receipt, [journal.events for journal in journals], origins_ns)
    timelines = [path for path in list_reports(folder) if path.endswith("/chromium_events.json")]
    for pid, path in enumerate(timelines if first_ns is not None else (), len(journals) + 1):
        foreign = list[TraceEvent]()
        with open_regular(path) or BytesIO() as stream, suppress(ValueError, RecursionError):
            raw = msgspec.json.decode(stream.read(MAX_BYTES))
            foreign = convert_foreign_events(raw, pid, first_ns or 0)
        if not foreign:
            notes.append(f"{path} is left out: it is gone, too large, or has no events of torch's")
        events += foreign
    about = {
        "producer": PRODUCER,
        "receipt_id": receipt.receipt_id,
        "begins_at_unix_ns": first_ns,
    }
    events, _ = sanitize(events, Redactor(list_secret_values((), os.environ)))
    document = {"displayTimeUnit": "ms", "otherData": about, "traceEvents": events}
    write_whole(file, json.dumps(document, allow_nan=False, separators=(",", ":")))
    return notes


def _compute_start_ns(journal: ProcessJournal) -> int | None:
    """Compute the nanoseconds since the epoch at which the clock of a process read 0."""
    started = journal.started
    if started is None or (began_s := parse_unix_s(started.started_utc)) is None:
        return None
    # To the microsecond; the start of a fork is on the clock of its parent.
    return round(began_s * 1e6) * 1000 - round(started.t * 1e9)


# --- what the processes did ----------------------------------------------------------------------


def list_events(
    receipt: Receipt, journals: Sequence[Sequence[wire.Event]], origins_ns: Sequence[int]
) -> list[TraceEvent]:
    """List the events of every process. `origins_ns` is when each attached, on one common clock."""
    timeline, listed = fold(journals), list[TraceEvent]()
    known = {(e.process, e.epoch, e.compile_id): e for e in receipt.compile.events}
    for index, (events, origin_ns) in enumerate(zip(journals, origins_ns, strict=True)):
        tracks: dict[str, list[TraceEvent]] = {}
        for track, event in chain(_list_slices(index, timeline, known), _list_moments(events)):
            tracks.setdefault(track, []).append(event)
        started, pid, tid = timeline.processes[index].started, index + 1, 0
        rank = "" if started is None or started.rank is None else f", rank {started.rank}"
        name = f"process {index}" if started is None else f"pid {started.pid}{rank}"
        listed.append(_name_row("process_name", pid, tid, name))
        for track, pieces in tracks.items():
            for row in pack_into_rows(pieces):
                tid += 1
                listed.append(_name_row("thread_name", pid, tid, track))
                here = {"pid": pid, "tid": tid}
                listed += [{**e, **here, "ts": e["ts"] + origin_ns / 1000} for e in row]
    return listed


def _name_row(kind: str, pid: int, tid: int, name: str) -> TraceEvent:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def make_event(
    category: str, name: str, start_s: float, wall_s: float | None = None, **args: Any
) -> TraceEvent:
    """Make a stretch of a process's time, a moment without `wall_s`; a negative duration, of forged
    records only, becomes zero."""
    at = round(start_s * 1e6, 3)
    event = {"ph": "i", "s": "t", "cat": category, "name": name, "ts": at, "args": args}
    return event if wall_s is None else {**event, "ph": "X", "dur": round(max(0, wall_s) * 1e6, 3)}


def pack_into_rows(events: Iterable[TraceEvent]) -> list[list[TraceEvent]]:
    """Pack events into as few rows as the order of their starts allows, each in order of time: of
    one row a viewer draws a stack, and draws wrongly or drops what overlaps without nesting."""
    # Invariant: beside each row the ends of its open slices, the innermost last; starts only grow.
    rows: list[tuple[list[TraceEvent], list[float]]] = []
    for event in sorted(events, key=lambda event: (event["ts"], -event.get("dur", 0.0))):
        end = event["ts"] + event.get("dur", 0.0)
        for row, ends in [*rows, (list[TraceEvent](), list[float]())]:
            start = event["ts"]
            while ends and ends[-1] <= start + CLOCK_NOISE_US:
                start = max(start, ends.pop())
            if not ends or end <= ends[-1] + CLOCK_NOISE_US:
                ends.append(max(start, min([end, *ends[-1:]])))
                lasts = {"dur": round(ends[-1] - start, 3)} if "dur" in event else {}
                row.append(event | {"ts": start} | lasts)
                rows += [(row, ends)] if len(row) == 1 else []
                break
    return [row for row, _ in rows]


def _list_slices(
    index: int, timeline: Timeline, known: Mapping[tuple[int, int, str], CompileEvent]
) -> Iterator[tuple[str, TraceEvent]]:
    """List the stretches of a process, each with its track."""
    steps = {step.number: step for step in timeline.steps if step.process == index}
    for number, step in steps.items():
        at, args = step.end - step.wall_s, {"compile_s": step.compile_s} if step.compile_s else {}
        yield "steps", make_event("step", f"step {number}", at, step.wall_s, **args)
        # End to end in their usual order: their places are not measured.
        for name in TIMED:
            if seconds := getattr(step, f"{name}_s"):
                phase = make_event("phase", name.replace("_", " "), at, seconds, step=number)
                yield "phases (lengths, not places)", phase
                at += seconds
    for compile_ in timeline.compiles:
        if compile_.process == index:
            key = (index, compile_.epoch, compile_.compile_id)
            yield "compiles", _make_compile(compile_, known.get(key))
    for sample in timeline.syncs:
        if sample.process == index and (step := steps.get(sample.step)) is not None:
            # The step as a whole: when in it a line read tensors is not known.
            kind = "synchronisation" if sample.on_device else "read of tensors on the host"
            name = pluralize(sum(site.count for site in sample.sites), kind)
            args = {"step": sample.step, "lines": msgspec.to_builtins(sample.sites)}
            event = make_event("sync", name, step.end - step.wall_s, step.wall_s, **args)
            yield "synchronisations (sampled steps)", event
    for span in select_spans(timeline, index):
        track = f"spans of thread {span.thread}" if span.thread else "spans"
        args = {"step": span.step, "phase": span.phase}
        yield track, make_event("span", span.name, span.start, span.wall_s, **args)
    for loop in timeline.pipelines:
        if loop.process != index:
            continue
        for run in loop.stages:
            event = make_event("pipeline", run.stage, run.start, run.wall_s, samples=run.samples)
            yield f"pipeline {loop.name}: {run.stage}", event
        for at, size in loop.pool:
            name = f"pool of {loop.name}"
            yield name, make_event("pool", name, at, samples=size) | {"ph": "C"}


def _make_compile(compile_: Compile, record: CompileEvent | None) -> TraceEvent:
    """Make the slice of an attempt, with the causes that the receipt has for it. A first compile
    may be a record of a backward with the same id, which has no causes of its own."""
    parts, frame = sum_compile_seconds([compile_]), compile_.frame
    causes = record.causes if record and compile_.guarded and compile_.forward else ()
    args: dict[str, Any] = {
        "compile_id": compile_.compile_id,
        "step": compile_.step,
        "seconds": parts and {name: round(value, 6) for name, value in parts.by_phase.items()},
        "reason": compile_.fail_reason or compile_.fail_type or None,
        "place": f"{frame.file}:{frame.line}" if frame.file else None,
        "graph_ops": compile_.graph_ops,
        "guards": compile_.guards,
        "causes": msgspec.to_builtins(causes) if causes else None,
    }
    name = f"{compile_.kind} {compile_.compile_id} {frame.function}".rstrip()
    for blamed in sorted(causes, key=lambda cause: not cause.primary)[:1]:
        name += f": {blamed.variable}"
        if blamed.expected is not None and blamed.actual is not None:
            name += f" {blamed.expected} → {blamed.actual}"
    args = {key: value for key, value in args.items() if value is not None}
    return make_event("compile", name, compile_.t - compile_.seconds, compile_.seconds, **args)


def _list_moments(events: Iterable[wire.Event]) -> Iterator[tuple[str, TraceEvent]]:
    """List graph breaks, recordings of CUDA graphs, periodic work and memory, with their tracks."""
    for event in events:
        if isinstance(event, wire.GraphBroke) and (place := parse_break_place(event.text)):
            name = f"graph break {place.file.rpartition('/')[2]}:{place.line}"
            args: dict[str, Any] = {"file": place.file, "compile_id": event.compile_id}
            yield "compiles", make_event("graph_break", name, event.t, **args)
        elif isinstance(event, wire.CompileStarted) and event.trigger == RECORDING:
            recording = make_event("cudagraph", "recording begins", event.t, step=event.step)
            yield "recordings of CUDA graphs", recording
        elif isinstance(event, wire.CadenceFired):
            for name, at, step in zip(event.name, event.at, event.steps, strict=False):
                if name < len(event.names):
                    fired = make_event("cadence", event.names[name], at, step=step)
                    yield "periodic work", fired
        elif isinstance(event, wire.DeviceMemoryRead):
            name = f"memory of device {event.device}"
            yield name, make_event("memory", name, event.t, **event.current) | {"ph": "C"}


# --- torch's own timeline ------------------------------------------------------------------------


def convert_foreign_events(raw: object, pid: int, first_ns: int) -> list[TraceEvent]:
    """Convert the events of one file that fit beside ours, as the process `pid`; they come from the
    program that ran: a malformed one is left out.

    `raw` is the decoded file, a list of events with times in microseconds since the epoch. The
    run's own timeline begins at `first_ns`, in nanoseconds since the epoch.
    """
    named, events = _name_row("process_name", pid, 0, "torch's own timeline"), list[TraceEvent]()
    for entry in cast("list[object]", raw) if isinstance(raw, list) else ():
        event = cast("TraceEvent", entry) if isinstance(entry, dict) else {}
        times = [event.get("ts"), event.get("dur", 0)]
        if event.get("ph") in FOREIGN_KINDS and all(type(each) in (int, float) for each in times):
            events.append({**event, "pid": pid, "ts": event["ts"] - first_ns / 1000})
    return [named, *events] if events else []
