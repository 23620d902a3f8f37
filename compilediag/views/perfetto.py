"""The timeline of a run as Chrome trace JSON, which ui.perfetto.dev and chrome://tracing open.

It has steps, phases, compiles, waits, spans and marks of each process, and torch's own timeline, as
tlparse wrote it, on the same clock.

Times come from the journals, causes from the receipt, which has them classified and redacted. Every
process has a number of its own and every row is a thread of it, numbered in the order in which it
is to be drawn. Times are microseconds since the first process attached.

Stretches that overlap without one holding the other are put on rows of their own: a viewer draws
the slices of one thread as a stack, and would draw such a pair wrongly or drop it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from compilediag.diagnosis.figures.compile_costs import compile_seconds, phase_of
from compilediag.receipt.sanitize import sanitized
from compilediag.receipt.schema.compiles import CompileEvent
from compilediag.receipt.schema.receipt import Receipt
from compilediag.timeline.frames import break_place
from compilediag.timeline.recorded import PipelineLoop
from compilediag.timeline.timeline import Compile, SampledStep, Step, Timeline, spans_of
from compilediag.views.format import count
from compilediag.views.steps import TIMED
from compilediag_harness.redaction.redactor import Redactor
from compilediag_harness.wire import (
    CadenceFired,
    CompileStarted,
    DeviceMemoryRead,
    Event,
    GraphBroke,
)

CLOCK_NOISE_NS = 2
"""Two times read as one and stored as floating point differ by no more after rounding."""
FOREIGN_KINDS = frozenset("BEXiIC")
"""Begin, end, whole, instant (two spellings) and counter: what torch writes."""
MAX_NAME_CHARS = 120
"""Of a slice, in characters."""
RECORDING = "CUDAGRAPH_RECORDING"
"""torch's name of the trigger of `CompileStarted` when a CUDA graph is about to be recorded."""

TraceEvent = dict[str, Any]
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


class Slice(NamedTuple):
    """A stretch of one process's time, in nanoseconds since the process attached; a moment where it
    ends as it begins and stands among the marks of its track."""

    name: str
    start_ns: int
    end_ns: int
    category: str
    args: Mapping[str, Any]


class Track(NamedTuple):
    """One row of the picture; overlapping slices make it several."""

    name: str
    slices: Sequence[Slice] = ()
    marks: Sequence[Slice] = ()


Counter = tuple[str, int, Mapping[str, float]]
"""Name, moment, and the values from then on."""


class ProcessTracks(NamedTuple):
    """Everything of one process."""

    name: str
    tracks: Sequence[Track]
    counters: Sequence[Counter] = ()


EventsById = Mapping[tuple[int, int, str], CompileEvent]
"""The receipt's compiles by process, epoch and compile id."""


# --- the file ----------------------------------------------------------------------------------


def render_perfetto(
    processes: Sequence[ProcessTracks],
    origins_ns: Sequence[int],
    about: Mapping[str, Any],
    redactor: Redactor,
    foreign: Iterable[TraceEvent] = (),
) -> str:
    """Render the whole file, one event a line.

    `origins_ns` is when each process attached, on one common clock; `about` are facts of the run,
    shown by the viewer as metadata; `foreign` events are of torch's own timeline, with times that
    fit ours. The redactor takes secrets out of texts of the target.
    """
    own = (
        event
        for number, (process, origin_ns) in enumerate(zip(processes, origins_ns, strict=True), 1)
        for event in _drawn(process, number, origin_ns, redactor)
    )
    lines = [_encode(event) for part in (own, foreign) for event in part]
    head = _encode({"displayTimeUnit": "ms", "otherData": dict(about)})
    return f'{head[:-1]},"traceEvents":[\n' + ",\n".join(lines) + "\n]}\n"


def _drawn(
    process: ProcessTracks, pid: int, origin_ns: int, redactor: Redactor
) -> Iterator[TraceEvent]:
    def drawn(kind: str, item: Slice, tid: int, **more: Any) -> TraceEvent:
        """A name that is cut stands whole among the arguments."""
        name, args = redactor.text(item.name), sanitized(item.args, redactor)[0]
        if len(name) > MAX_NAME_CHARS:
            args = {**args, "name": name}
            name = f"{name[: MAX_NAME_CHARS - 1]}…"
        begin = {"pid": pid, "tid": tid, "ts": (origin_ns + item.start_ns) / 1000}
        return {"ph": kind, "name": name, "args": args, "cat": item.category, **begin, **more}

    yield _named("process_name", pid, 0, name=redactor.text(process.name))
    yield _named("process_sort_index", pid, 0, sort_index=pid - 1)
    tid = 0
    for track in process.tracks:
        # Moments stand on the first row of their track.
        yield from (drawn("i", mark, tid + 1, s="t") for mark in track.marks)
        for index, lane in enumerate(lanes_of(track.slices) or [[]]):
            tid += 1
            label = track.name if index == 0 else f"{track.name} ({index + 1})"
            yield _named("thread_name", pid, tid, name=redactor.text(label))
            yield _named("thread_sort_index", pid, tid, sort_index=tid)
            for item in lane:
                yield drawn("X", item, tid, dur=(item.end_ns - item.start_ns) / 1000)
    for name, at_ns, values in process.counters:
        yield {**drawn("C", Slice(name, at_ns, at_ns, "", {}), 0), "args": dict(values)}


def _named(kind: str, pid: int, tid: int, **args: object) -> TraceEvent:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args}


def slice_of(
    name: str, start_s: float, wall_s: float, category: str, args: Mapping[str, Any]
) -> Slice:
    """Make a slice from seconds; a negative duration, of forged records only, becomes zero."""
    start_ns = _ns(start_s)
    return Slice(name, start_ns, max(_ns(start_s + wall_s), start_ns), category, args)


def lanes_of(slices: Iterable[Slice]) -> list[list[Slice]]:
    """Pack slices into as few rows as the order of their starts allows, each in order of time."""
    lanes: list[list[Slice]] = []
    # Invariant: beside each row the ends of its open slices, the innermost last; starts only grow.
    open_ends: list[list[int]] = []
    for item in sorted(slices, key=lambda one: (one.start_ns, -one.end_ns)):
        for lane, ends in zip(lanes, open_ends, strict=True):
            fitted = _fitted(item, ends)
            if fitted is not None:
                lane.append(fitted)
                ends.append(fitted.end_ns)
                break
        else:
            lanes.append([item])
            open_ends.append([item.end_ns])
    return lanes


def _fitted(item: Slice, ends: list[int]) -> Slice | None:
    """Fit a slice behind or into what is open; None where it would cut through it.

    `ends` are the ends of the slices that hold each other, the innermost last; those that are over
    leave it.
    """
    while ends and ends[-1] <= item.start_ns:
        ends.pop()
    if not ends or item.end_ns <= ends[-1]:
        return item
    if ends[-1] - item.start_ns <= CLOCK_NOISE_NS:
        shifted = item._replace(start_ns=ends[-1])
        ends.pop()
        return _fitted(shifted, ends)
    if item.end_ns - ends[-1] <= CLOCK_NOISE_NS:
        return item._replace(end_ns=ends[-1])
    return None


# --- what each process did ----------------------------------------------------------------------


def tracks_of(
    receipt: Receipt, timeline: Timeline, journals: Sequence[Sequence[Event]]
) -> list[ProcessTracks]:
    """Build the tracks of every process; `timeline` is the fold of the same `journals`."""
    known: EventsById = {(e.process, e.epoch, e.compile_id): e for e in receipt.compile.events}
    return [
        _process(index, timeline, events, known)
        for index, events in enumerate(journals[: len(timeline.processes)])
    ]


def _process(
    index: int, timeline: Timeline, events: Sequence[Event], known: EventsById
) -> ProcessTracks:
    started = timeline.processes[index].started
    name = f"process {index}"
    if started is not None:
        rank = "" if started.rank is None else f"rank {started.rank}, "
        program = next((word for word in started.argv[1:] if not word.startswith("-")), "python")
        name = f"{rank}{program.rpartition('/')[2]} (pid {started.pid})"
    steps = [item for item in timeline.steps if item.process == index]
    compiles = [item for item in timeline.compiles if item.process == index]
    samples = [item for item in timeline.syncs if item.process == index]
    loops = [item for item in timeline.pipelines if item.process == index]
    breaks, recordings, fires, memory = _moments(events)
    whole = [
        slice_of(
            f"step {step.number}",
            step.end - step.wall_s,
            step.wall_s,
            "step",
            {"compile_s": step.compile_s} if step.compile_s else {},
        )
        for step in steps
    ]
    found = [
        Track("steps", whole),
        Track("phases (lengths, not places)", [piece for item in steps for piece in _phases(item)]),
        Track("compiles", [part for item in compiles for part in _compile(item, known)], breaks),
        Track("recordings of CUDA graphs", (), recordings),
        Track("synchronisations (sampled steps)", _syncs(samples, steps)),
        *_spans(index, timeline),
        Track("periodic work", (), fires),
        *(track for loop in loops for track in _stages(loop)),
    ]
    pools = [
        (f"pool of {loop.name}", _ns(at), {"samples": size})
        for loop in loops
        for at, size in loop.pool
    ]
    filled = [track for track in found if track.slices or track.marks]
    return ProcessTracks(name, filled, [*memory, *pools])


def _phases(step: Step) -> Iterable[Slice]:
    """Make the phases of a step end to end in their usual order: their places are not measured."""
    at = step.end - step.wall_s
    for name in TIMED:
        seconds: float | None = getattr(step, f"{name}_s")
        if seconds:
            yield slice_of(name.replace("_", " "), at, seconds, "phase", {"step": step.number})
            at += seconds


def _syncs(samples: Iterable[SampledStep], steps: Iterable[Step]) -> list[Slice]:
    """Make a slice of each sampled step as a whole: when in it a line read tensors is not known."""
    by_number = {step.number: step for step in steps}
    found: list[Slice] = []
    for sample in samples:
        step = by_number.get(sample.step)
        if step is not None:
            reads = sum(site.count for site in sample.sites)
            kind = "synchronisation" if sample.on_device else "read of tensors on the host"
            lines = [
                {"file": s.place.file, "line": s.place.line, "kind": s.kind, "count": s.count}
                for s in sample.sites
            ]
            args = {"step": step.number, "lines": lines, "complete": sample.complete}
            start = step.end - step.wall_s
            found.append(slice_of(count(reads, kind), start, step.wall_s, "sync", args))
    return found


_CAUSE = ("rule", "family", "variable", "expected", "actual", "guard", "file", "line")
"""Facts of a cause that are shown."""


def _compile(item: Compile, known: EventsById) -> Iterable[Slice]:
    """Make slices: an attempt, with the causes that the receipt has for it, and in it the phases
    that torch timed. They end where it ends: what it took and what they took is read from two
    clocks. A first compile may be a record of a backward with the same id, which has no causes of
    its own."""
    record = known.get((item.process, item.epoch, item.compile_id)) if item.guarded else None
    args: dict[str, Any] = {"compile_id": item.compile_id, "step": item.step}
    if item.epoch:
        args["after_reset"] = item.epoch
    if (parts := compile_seconds([item])) is not None:
        args["seconds"] = {name: round(value, 6) for name, value in parts.by_phase.items()}
    if item.fail_reason or item.fail_type:
        args["reason"] = item.fail_reason or item.fail_type
    name = f"{item.kind} {item.compile_id} {item.frame.function}".rstrip()
    if item.frame.file:
        args |= {"file": item.frame.file, "line": item.frame.line}
    if item.graph_ops is not None:
        args |= {"graph_ops": item.graph_ops, "guards": item.guards}
    if record is not None and item.forward and record.causes:
        args["causes"] = [
            {key: value for key in _CAUSE if (value := getattr(cause, key)) is not None}
            | {"to_blame": cause.primary}
            for cause in record.causes
        ]
        blamed = next((cause for cause in record.causes if cause.primary), record.causes[0])
        name += f": {blamed.variable}"
        if blamed.expected is not None and blamed.actual is not None:
            name += f" {blamed.expected} → {blamed.actual}"
    whole = slice_of(name, item.t - item.seconds, item.seconds, "compile", args)
    yield whole
    for phase, after_s, seconds in item.phase_spans:
        begin = min(whole.start_ns + _ns(max(0.0, after_s)), whole.end_ns)
        end = min(begin + _ns(max(0.0, seconds)), whole.end_ns)
        yield Slice(phase, begin, end, "compile phase", {"phase": phase_of(phase)})


def _moments(
    events: Iterable[Event],
) -> tuple[list[Slice], list[Slice], list[Slice], list[Counter]]:
    """Collect graph breaks, CUDA-graph recordings, periodic work as marks; memory as counters."""
    breaks: list[Slice] = []
    recordings: list[Slice] = []
    fires: list[Slice] = []
    memory: list[Counter] = []
    for event in events:
        if isinstance(event, GraphBroke):
            place = break_place(event.text)
            if place is not None:
                args = {"file": place.file, "line": place.line, "compile_id": event.compile_id}
                name = f"graph break {place.file.rpartition('/')[2]}:{place.line}"
                breaks.append(slice_of(name, event.t, 0.0, "graph_break", args))
        elif isinstance(event, CompileStarted):
            if event.trigger == RECORDING:
                args = {"step": event.step}
                recordings.append(slice_of("recording begins", event.t, 0.0, "cudagraph", args))
        elif isinstance(event, CadenceFired):
            for name, at, step in zip(event.name, event.at, event.steps, strict=False):
                if name < len(event.names):
                    args = {"step": step}
                    fires.append(slice_of(event.names[name], at, 0.0, "cadence", args))
        elif isinstance(event, DeviceMemoryRead):
            names = ("allocated_bytes", "reserved_bytes")
            values = {name: float(event.current[name]) for name in names if name in event.current}
            memory.append((f"memory of device {event.device}", _ns(event.t), values))
    return breaks, recordings, fires, memory


def _spans(index: int, timeline: Timeline) -> Iterable[Track]:
    """Make a track for each thread."""
    threads: dict[int, list[Slice]] = {}
    for span in spans_of(timeline, index):
        args = {"step": span.step, "phase": span.phase}
        piece = slice_of(span.name, span.start, span.wall_s, "span", args)
        threads.setdefault(span.thread, []).append(piece)
    for thread, pieces in sorted(threads.items()):
        yield Track("spans" if thread == 0 else f"spans of thread {thread}", pieces)


def _stages(loop: PipelineLoop) -> Iterable[Track]:
    """Make a track for each stage of a producer-consumer loop."""
    for stage in dict.fromkeys(item.stage for item in loop.stages):
        pieces = [
            slice_of(stage, item.start, item.wall_s, "pipeline", {"samples": item.samples})
            for item in loop.stages
            if item.stage == stage
        ]
        yield Track(f"pipeline {loop.name}: {stage}", pieces)


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


# --- torch's own timeline ------------------------------------------------------------------------


def foreign_events(
    raw: object, pid: int, name: str, first_ns: int, redactor: Redactor
) -> tuple[list[TraceEvent], int]:
    """Convert the events of one file that fit beside ours, and count those that did not. They come
    from the program that ran: a malformed one is left out.

    `raw` is the decoded file, a list of events with times in microseconds since the epoch; they are
    to stand under the process `name` with the number `pid`. The run's own timeline begins at
    `first_ns`, in nanoseconds since the epoch.
    """
    items = cast("list[object]", raw) if isinstance(raw, list) else []
    events: list[TraceEvent] = []
    for raw_item in items:
        item = cast("dict[str, Any]", raw_item) if isinstance(raw_item, dict) else {}
        kind, at, tid = item.get("ph"), _number(item.get("ts")), item.get("tid")
        lasted = _number(item.get("dur"))
        if kind not in FOREIGN_KINDS or at is None or (kind == "X" and lasted is None):
            continue
        event: TraceEvent = {
            "ph": kind,
            "name": redactor.text(str(item.get("name", ""))),
            "cat": redactor.text(str(item.get("cat", ""))),
            "pid": pid,
            "tid": tid if type(tid) is int else 0,
            "ts": at - first_ns / 1000,
        }
        event |= {"dur": lasted} if kind == "X" else {}
        event |= {"s": "t"} if kind in "iI" else {}
        if isinstance(item.get("args"), dict):
            event["args"] = sanitized(item["args"], redactor)[0]
        events.append(event)
    left_out = len(items) - len(events)
    if events:
        events.insert(0, _named("process_name", pid, 0, name=name))
    return events, left_out


def _number(value: object) -> float | None:
    """Parse a finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None
