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

from compilediag.diagnosis.figures.compile_costs import classify_phase, sum_compile_seconds
from compilediag.receipt.sanitize import sanitize
from compilediag.receipt.schema.compiles import CompileEvent
from compilediag.receipt.schema.receipt import Receipt
from compilediag.timeline.frames import parse_break_place
from compilediag.timeline.recorded import PipelineLoop
from compilediag.timeline.timeline import Compile, SampledStep, Step, Timeline, select_spans
from compilediag.views.format import pluralize
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
        for event in _emit_process(process, number, origin_ns, redactor)
    )
    lines = [_encode(event) for part in (own, foreign) for event in part]
    head = _encode({"displayTimeUnit": "ms", "otherData": dict(about)})
    return f'{head[:-1]},"traceEvents":[\n' + ",\n".join(lines) + "\n]}\n"


def _emit_process(
    process: ProcessTracks, pid: int, origin_ns: int, redactor: Redactor
) -> Iterator[TraceEvent]:
    def make_event(kind: str, piece: Slice, tid: int, **more: Any) -> TraceEvent:
        """A name that is cut stands whole among the arguments."""
        name, args = redactor.redact_text(piece.name), sanitize(piece.args, redactor)[0]
        if len(name) > MAX_NAME_CHARS:
            args = {**args, "name": name}
            name = f"{name[: MAX_NAME_CHARS - 1]}…"
        begin = {"pid": pid, "tid": tid, "ts": (origin_ns + piece.start_ns) / 1000}
        return {"ph": kind, "name": name, "args": args, "cat": piece.category, **begin, **more}

    yield _make_metadata("process_name", pid, 0, name=redactor.redact_text(process.name))
    yield _make_metadata("process_sort_index", pid, 0, sort_index=pid - 1)
    tid = 0
    for track in process.tracks:
        # Moments stand on the first row of their track.
        yield from (make_event("i", mark, tid + 1, s="t") for mark in track.marks)
        for index, row in enumerate(pack_into_rows(track.slices) or [[]]):
            tid += 1
            label = track.name if index == 0 else f"{track.name} ({index + 1})"
            yield _make_metadata("thread_name", pid, tid, name=redactor.redact_text(label))
            yield _make_metadata("thread_sort_index", pid, tid, sort_index=tid)
            for piece in row:
                yield make_event("X", piece, tid, dur=(piece.end_ns - piece.start_ns) / 1000)
    for name, at_ns, values in process.counters:
        yield {**make_event("C", Slice(name, at_ns, at_ns, "", {}), 0), "args": dict(values)}


def _make_metadata(kind: str, pid: int, tid: int, **args: object) -> TraceEvent:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args}


def make_slice(
    name: str, start_s: float, wall_s: float, category: str, args: Mapping[str, Any]
) -> Slice:
    """Make a slice from seconds; a negative duration, of forged records only, becomes zero."""
    start_ns = _round_to_ns(start_s)
    return Slice(name, start_ns, max(_round_to_ns(start_s + wall_s), start_ns), category, args)


def pack_into_rows(slices: Iterable[Slice]) -> list[list[Slice]]:
    """Pack slices into as few rows as the order of their starts allows, each in order of time."""
    rows: list[list[Slice]] = []
    # Invariant: beside each row the ends of its open slices, the innermost last; starts only grow.
    open_ends: list[list[int]] = []
    for piece in sorted(slices, key=lambda piece: (piece.start_ns, -piece.end_ns)):
        for row, ends in zip(rows, open_ends, strict=True):
            fitted = _fit_slice(piece, ends)
            if fitted is not None:
                row.append(fitted)
                ends.append(fitted.end_ns)
                break
        else:
            rows.append([piece])
            open_ends.append([piece.end_ns])
    return rows


def _fit_slice(piece: Slice, ends: list[int]) -> Slice | None:
    """Fit a slice behind or into what is open; None where it would cut through it.

    `ends` are the ends of nested slices, the innermost last; those that are over leave it.
    """
    while ends and ends[-1] <= piece.start_ns:
        ends.pop()
    if not ends or piece.end_ns <= ends[-1]:
        return piece
    if ends[-1] - piece.start_ns <= CLOCK_NOISE_NS:
        shifted = piece._replace(start_ns=ends[-1])
        ends.pop()
        return _fit_slice(shifted, ends)
    if piece.end_ns - ends[-1] <= CLOCK_NOISE_NS:
        return piece._replace(end_ns=ends[-1])
    return None


# --- what each process did ----------------------------------------------------------------------


def build_tracks(
    receipt: Receipt, timeline: Timeline, journals: Sequence[Sequence[Event]]
) -> list[ProcessTracks]:
    """Build the tracks of every process; `timeline` is the fold of the same `journals`."""
    known: EventsById = {(e.process, e.epoch, e.compile_id): e for e in receipt.compile.events}
    return [
        _build_process(index, timeline, events, known)
        for index, events in enumerate(journals[: len(timeline.processes)])
    ]


def _build_process(
    index: int, timeline: Timeline, events: Sequence[Event], known: EventsById
) -> ProcessTracks:
    started = timeline.processes[index].started
    name = f"process {index}"
    if started is not None:
        rank = "" if started.rank is None else f"rank {started.rank}, "
        program = next((word for word in started.argv[1:] if not word.startswith("-")), "python")
        name = f"{rank}{program.rpartition('/')[2]} (pid {started.pid})"
    steps = [step for step in timeline.steps if step.process == index]
    compiles = [compile_ for compile_ in timeline.compiles if compile_.process == index]
    samples = [sample for sample in timeline.syncs if sample.process == index]
    loops = [loop for loop in timeline.pipelines if loop.process == index]
    breaks, recordings, fires, memory = _collect_moments(events)
    whole = [
        make_slice(
            f"step {step.number}",
            step.end - step.wall_s,
            step.wall_s,
            "step",
            {"compile_s": step.compile_s} if step.compile_s else {},
        )
        for step in steps
    ]
    tracks = [
        Track("steps", whole),
        Track(
            "phases (lengths, not places)",
            [piece for step in steps for piece in _make_phases(step)],
        ),
        Track(
            "compiles",
            [part for compile_ in compiles for part in _make_compile(compile_, known)],
            breaks,
        ),
        Track("recordings of CUDA graphs", (), recordings),
        Track("synchronisations (sampled steps)", _make_syncs(samples, steps)),
        *_make_spans(index, timeline),
        Track("periodic work", (), fires),
        *(track for loop in loops for track in _make_stages(loop)),
    ]
    pools = [
        (f"pool of {loop.name}", _round_to_ns(at), {"samples": size})
        for loop in loops
        for at, size in loop.pool
    ]
    filled = [track for track in tracks if track.slices or track.marks]
    return ProcessTracks(name, filled, [*memory, *pools])


def _make_phases(step: Step) -> Iterable[Slice]:
    """Make the phases of a step end to end in their usual order: their places are not measured."""
    at = step.end - step.wall_s
    for name in TIMED:
        seconds: float | None = getattr(step, f"{name}_s")
        if seconds:
            yield make_slice(name.replace("_", " "), at, seconds, "phase", {"step": step.number})
            at += seconds


def _make_syncs(samples: Iterable[SampledStep], steps: Iterable[Step]) -> list[Slice]:
    """Make a slice of each sampled step as a whole: when in it a line read tensors is not known."""
    by_number = {step.number: step for step in steps}
    slices: list[Slice] = []
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
            slices.append(make_slice(pluralize(reads, kind), start, step.wall_s, "sync", args))
    return slices


_CAUSE = ("rule", "family", "variable", "expected", "actual", "guard", "file", "line")
"""Facts of a cause that are shown."""


def _make_compile(compile_: Compile, known: EventsById) -> Iterable[Slice]:
    """Make slices: an attempt, with the causes that the receipt has for it, and in it the phases
    that torch timed. They end where it ends: what it took and what they took is read from two
    clocks. A first compile may be a record of a backward with the same id, which has no causes of
    its own."""
    key = (compile_.process, compile_.epoch, compile_.compile_id)
    record = known.get(key) if compile_.guarded else None
    args: dict[str, Any] = {"compile_id": compile_.compile_id, "step": compile_.step}
    if compile_.epoch:
        args["after_reset"] = compile_.epoch
    if (parts := sum_compile_seconds([compile_])) is not None:
        args["seconds"] = {name: round(value, 6) for name, value in parts.by_phase.items()}
    if compile_.fail_reason or compile_.fail_type:
        args["reason"] = compile_.fail_reason or compile_.fail_type
    name = f"{compile_.kind} {compile_.compile_id} {compile_.frame.function}".rstrip()
    if compile_.frame.file:
        args |= {"file": compile_.frame.file, "line": compile_.frame.line}
    if compile_.graph_ops is not None:
        args |= {"graph_ops": compile_.graph_ops, "guards": compile_.guards}
    if record is not None and compile_.forward and record.causes:
        args["causes"] = [
            {key: value for key in _CAUSE if (value := getattr(cause, key)) is not None}
            | {"to_blame": cause.primary}
            for cause in record.causes
        ]
        blamed = next((cause for cause in record.causes if cause.primary), record.causes[0])
        name += f": {blamed.variable}"
        if blamed.expected is not None and blamed.actual is not None:
            name += f" {blamed.expected} → {blamed.actual}"
    whole = make_slice(name, compile_.t - compile_.seconds, compile_.seconds, "compile", args)
    yield whole
    for phase, after_s, seconds in compile_.phase_spans:
        begin = min(whole.start_ns + _round_to_ns(max(0.0, after_s)), whole.end_ns)
        end = min(begin + _round_to_ns(max(0.0, seconds)), whole.end_ns)
        yield Slice(phase, begin, end, "compile phase", {"phase": classify_phase(phase)})


def _collect_moments(
    events: Iterable[Event],
) -> tuple[list[Slice], list[Slice], list[Slice], list[Counter]]:
    """Collect graph breaks, CUDA-graph recordings, periodic work as marks; memory as counters."""
    breaks: list[Slice] = []
    recordings: list[Slice] = []
    fires: list[Slice] = []
    memory: list[Counter] = []
    for event in events:
        if isinstance(event, GraphBroke):
            place = parse_break_place(event.text)
            if place is not None:
                args = {"file": place.file, "line": place.line, "compile_id": event.compile_id}
                name = f"graph break {place.file.rpartition('/')[2]}:{place.line}"
                breaks.append(make_slice(name, event.t, 0.0, "graph_break", args))
        elif isinstance(event, CompileStarted):
            if event.trigger == RECORDING:
                args = {"step": event.step}
                recordings.append(make_slice("recording begins", event.t, 0.0, "cudagraph", args))
        elif isinstance(event, CadenceFired):
            for name, at, step in zip(event.name, event.at, event.steps, strict=False):
                if name < len(event.names):
                    args = {"step": step}
                    fires.append(make_slice(event.names[name], at, 0.0, "cadence", args))
        elif isinstance(event, DeviceMemoryRead):
            names = ("allocated_bytes", "reserved_bytes")
            values = {name: float(event.current[name]) for name in names if name in event.current}
            memory.append((f"memory of device {event.device}", _round_to_ns(event.t), values))
    return breaks, recordings, fires, memory


def _make_spans(index: int, timeline: Timeline) -> Iterable[Track]:
    """Make a track for each thread."""
    threads: dict[int, list[Slice]] = {}
    for span in select_spans(timeline, index):
        args = {"step": span.step, "phase": span.phase}
        piece = make_slice(span.name, span.start, span.wall_s, "span", args)
        threads.setdefault(span.thread, []).append(piece)
    for thread, pieces in sorted(threads.items()):
        yield Track("spans" if thread == 0 else f"spans of thread {thread}", pieces)


def _make_stages(loop: PipelineLoop) -> Iterable[Track]:
    """Make a track for each stage of a producer-consumer loop."""
    for stage in dict.fromkeys(stretch.stage for stretch in loop.stages):
        pieces = [
            make_slice(
                stage, stretch.start, stretch.wall_s, "pipeline", {"samples": stretch.samples}
            )
            for stretch in loop.stages
            if stretch.stage == stage
        ]
        yield Track(f"pipeline {loop.name}: {stage}", pieces)


def _round_to_ns(seconds: float) -> int:
    return round(seconds * 1e9)


# --- torch's own timeline ------------------------------------------------------------------------


def convert_foreign_events(
    raw: object, pid: int, name: str, first_ns: int, redactor: Redactor
) -> tuple[list[TraceEvent], int]:
    """Convert the events of one file that fit beside ours, and count those that did not. They come
    from the program that ran: a malformed one is left out.

    `raw` is the decoded file, a list of events with times in microseconds since the epoch; they are
    to stand under the process `name` with the number `pid`. The run's own timeline begins at
    `first_ns`, in nanoseconds since the epoch.
    """
    raw_events = cast("list[object]", raw) if isinstance(raw, list) else []
    events: list[TraceEvent] = []
    for raw_event in raw_events:
        fields = cast("dict[str, Any]", raw_event) if isinstance(raw_event, dict) else {}
        kind, at, tid = fields.get("ph"), _parse_number(fields.get("ts")), fields.get("tid")
        lasted = _parse_number(fields.get("dur"))
        if kind not in FOREIGN_KINDS or at is None or (kind == "X" and lasted is None):
            continue
        event: TraceEvent = {
            "ph": kind,
            "name": redactor.redact_text(str(fields.get("name", ""))),
            "cat": redactor.redact_text(str(fields.get("cat", ""))),
            "pid": pid,
            "tid": tid if type(tid) is int else 0,
            "ts": at - first_ns / 1000,
        }
        event |= {"dur": lasted} if kind == "X" else {}
        event |= {"s": "t"} if kind in "iI" else {}
        if isinstance(fields.get("args"), dict):
            event["args"] = sanitize(fields["args"], redactor)[0]
        events.append(event)
    left_out = len(raw_events) - len(events)
    if events:
        events.insert(0, _make_metadata("process_name", pid, 0, name=name))
    return events, left_out


def _parse_number(value: object) -> float | None:
    """Parse a finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None
