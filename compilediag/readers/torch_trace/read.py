"""Reads TORCH_TRACE files as the events of each of their processes, every loss counted.

The events are those of a live run, as far as a trace holds them. torch's printed reasons take the
place of evaluated guards, so causes have confidence "text". A trace has no steps.

Compile ids start again at 0/0 after `torch._dynamo.reset()`, of which there is no record: an id
that begins a second time, in its first attempt, begins an epoch.

The call by which the program came to what was compiled is in the stack of the record of its start.
torch leaves the innermost calls of that stack out, one or two of them not its own: the call of a
compiled function is missing, that of a compiled module, which lies further out, is not. So a call
counts only where that into compiled code is seen below it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from sys import intern

from compilediag.readers.journal import ProcessJournal, add_loss, read_processes
from compilediag.readers.lines import parse_json, parse_list, parse_object
from compilediag.readers.torch_trace.records import ARTIFACTS, CacheRecords, SizeGuards, TracePhases
from compilediag.readers.torch_trace.scan import (
    TIMING,
    WANTED,
    About,
    Call,
    Losses,
    Metadata,
    Metrics,
    TraceRecord,
    TraceScanner,
    convert_to_seconds,
    decode_metadata,
    format_compile_id,
    get_count,
    get_list,
    get_text,
    intern_text,
    make_compiled,
    parse_stack,
)
from compilediag.timeline.ownership import classify_ownership
from compilediag_harness import wire
from compilediag_harness.base.resumed_frames import find_resumed_function

PROCESS_LIMIT = 1024
"""Most process ids distinguished in one file; torch 2.7 lets forked children write into it."""

_RANK = re.compile(r"rank[_-]?(\d{1,7})(?!\d)")


def read_trace(path: str) -> tuple[ProcessJournal, ...]:
    """Read the processes that wrote into the trace at `path`, in the order of their first record.

    A file that holds no record, or cannot be read, is one process with that loss.
    """
    return read_processes(path, "torch_trace", parse_trace)


def parse_trace(chunks: Iterable[bytes], name: str) -> tuple[ProcessJournal, ...]:
    """Parse the bytes of a trace to its processes; `name` is the file's, which may hold a rank."""
    scanner = TraceScanner(WANTED, ARTIFACTS)
    losses = scanner.losses
    processes: dict[int, TraceProcess] = {}
    strings: dict[int, str] = {}
    rank = parse_rank(name)
    for record in scanner.iterate_records(chunks):
        if record.pid not in processes:
            if len(processes) >= PROCESS_LIMIT:
                losses.add("over_limit")
                continue
            processes[record.pid] = TraceProcess(record, rank, strings, losses)
        if record.kind == TIMING:
            processes[record.pid].take_timing(record)
        else:
            try:
                record.metadata.decode()
                record.payload.decode()
            except UnicodeDecodeError:
                losses.add("bad_utf8")
            metadata = decode_metadata(record.metadata)
            proc = processes[record.pid]
            problem = "bad_json" if metadata is None else proc.take(record, metadata)
            if problem is not None:
                losses.add(problem)
    if not processes and not losses.counts:
        losses.add("empty")
    journals = [proc.make_journal(name) for proc in processes.values()] or [ProcessJournal(name)]
    if losses.counts or losses.torn:
        # Those of a file are reported by its first process.
        texts = [f"{count} {_TEXTS[reason]}" for reason, count in losses.counts.items()]
        texts += ["the last record is cut"] if losses.torn else []
        journal = add_loss(journals[0], "torch_trace", ", ".join(texts))
        journals[0] = replace(journal, torn_tail=losses.torn, lost=dict(losses.counts))
    return tuple(journals)


def parse_rank(name: str) -> int | None:
    """Parse the rank in a file's name: "dedicated_log_torch_trace_rank_3_x1y2.log"; else None."""
    match = _RANK.search(name)
    return int(match[1]) if match else None


_TEXTS = {
    "bad_prefix": "lines are not of torch's trace",
    "bad_json": "records are no JSON that was understood",
    "bad_payload_hash": "payloads are not what torch wrote",
    "bad_utf8": "records hold bytes that are not UTF-8, and are read without them",
    "too_long": "records are too long to be read",
    "over_limit": "records are beyond the limit on what is stored",
    "empty": "files hold no record",
}


_ENTRY = "/torch/_dynamo/eval_frame.py"
_CALL_CHARS = 500
_TYPED = ("<stdin", "<ipython", "<string>")
"""Code of the program's own that has no file; other names like these are of generated code."""

MAX_ROWS = 12_000
"""Most attempts of a process that are stored; later records are counted as lost. With as many,
`analyze` has 54 MB resident, whatever the size of the trace."""

MAX_EVENTS = 36_000
"""Most events of a process: an attempt has one to three."""

MAX_REASONS = 8
"""Most printed reasons stored of one recompile; only the first one decides its cause."""

EXPORTING = "/torch/export/_trace.py"
"""How the name of the file ends that stands in the stack of all that an export records."""

MAX_OPERATIONS = 4096

MAX_STRINGS = 20_000
"""Most file names stored of a file's table of strings."""

HOOKS = {
    "metrics_rows": True,
    "recompile_reasons": True,
    "steps": False,
    "guards": False,
    "cache_writes": False,
}

NOT_IN_A_TRACE = {
    "guards": "a trace holds the first false guard of each cache entry, as text, and no other",
    "steps": "a trace does not tell steps: nothing can be said per step",
}
"""What cannot be observed in a trace, by hook."""

OLD_SKIPS = {
    "graph_breaks": "torch 2.7 writes no trace record of a break for which it skips the whole "
    "frame: such a frame is seen to run eager, and its break is not counted"
}

_BEFORE_2_7 = re.compile(r"(?:1|2\.[0-6])\.")
WRITTEN_BY_OLD_TORCH = "the trace was written by an older torch than 2.7, and its records not read"

Key = tuple[int, str]
"""Epoch and compile id."""

_YEAR_S = 366 * 86400.0
_UNKNOWN = wire.Location("", 0, "")


class TraceProcess:
    """One process id of one file."""

    def __init__(
        self, first: TraceRecord, rank: int | None, strings: dict[int, str], losses: Losses
    ) -> None:
        self.rank = rank
        self._pid = first.pid
        self._begun_s = first.at_s
        self._t = 0.0
        self._strings = strings
        self._events: list[wire.Event] = []
        self._epoch = 0
        self._begun: set[str] = set()
        self._open: dict[Key, wire.Location | None] = {}
        """Frames of compiles that began and have no row yet."""
        self._frames: dict[Key, wire.Location] = {}
        """What is compiled under a frame id: an attempt at the limit has a row without it."""
        self._reasons: dict[Key, tuple[float, tuple[str, ...]]] = {}
        """Time and printed reasons of recompiles that have no row yet."""
        self._callers: dict[Key, tuple[wire.UserCall | None, str]] = {}
        """Calls, or threads, that compiles that have no row yet were called from."""
        self._calls: dict[wire.UserCall | None, wire.UserCall | None] = {}
        """Each once: many compiles are called from one place."""
        self._rows: set[Key] = set()
        self._row_count = 0
        self._torch: str | None = None
        self._python = ""
        self._started_unix: float | None = None
        self._has_rank = False
        self._is_old = False
        """Written by a torch before 2.7."""
        self._sizes = SizeGuards(strings)
        self._caches = CacheRecords()
        self._exports: set[Key] = set()
        """Compiles that began below `torch.export`."""
        self._phases = TracePhases(losses)
        self._cut = False

    def take_timing(self, record: TraceRecord) -> None:
        """Take a record of a timed phase."""
        metadata = decode_metadata(record.metadata)
        self._phases.take_record(record.payload, format_compile_id(metadata) if metadata else "")

    def take(self, record: TraceRecord, metadata: Metadata) -> str | None:
        """Take one record; return the reason why it is lost, if it is."""
        # Local time without a year: it may step back, which time of a run does not.
        since = record.at_s - self._begun_s
        self._t = max(self._t, since + _YEAR_S if since < -_YEAR_S / 2 else since)
        if not self._has_rank and (rank := get_count(metadata.rank)) is not None:
            # The record is right about the process; a file's name may be anything.
            self.rank, self._has_rank = rank, True
        if metadata.str is not None:
            return self._add_string(get_list(metadata.str))
        # Invariant: when full, nothing more is stored. No row would confirm a later recompile.
        events = len(self._events) + len(self._reasons)
        most = max(events, len(self._begun), len(self._open))
        if self._row_count >= MAX_ROWS or most >= MAX_EVENTS:
            self._cut = True
            return "over_limit"
        if metadata.metrics is not None:
            self._add_row(metadata.metrics, record.metadata)
        elif metadata.dynamo_start is not None:
            self._begin_compile(metadata, metadata.dynamo_start)
        elif metadata.artifact is not None:
            self._add_artifact(str(metadata.artifact.name), record.payload, metadata)
        elif not self._sizes.take(metadata):
            return "bad_json"
        return None

    def make_journal(self, name: str) -> ProcessJournal:
        """Make the journal of the process, of all its events."""
        version = self._torch or ""
        events = [*self._events, *(() if self._cut else self._iterate_unended())]
        if self._is_old or _BEFORE_2_7.match(version):
            # Its records are of another form: what was counted of them would be wrong.
            events = [wire.EvidenceLost(self._t, 0, wire.OLD_TORCH, WRITTEN_BY_OLD_TORCH)]
        lost = dict(NOT_IN_A_TRACE)
        if not version or version.startswith("2.7."):
            lost |= OLD_SKIPS
        stamp = ""
        if self._started_unix is not None:
            with suppress(OverflowError, ValueError, OSError):
                stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._started_unix))
        started = wire.ProcessStarted(
            0.0, wire.WIRE_VERSION, self._pid, 0, self.rank, None, (), "", "", stamp, self._python
        )
        opening = (started, wire.TorchSeen(0.0, version, None, dict(HOOKS), lost))
        events.sort(key=lambda event: event.t)
        return ProcessJournal(name, (*opening, *events))

    def _begin_compile(self, metadata: Metadata, start: About) -> None:
        if get_count(metadata.attempt):  # a restart
            return
        compile_id = format_compile_id(metadata)
        if compile_id in self._begun:
            self._begin_epoch()
        self._begun.add(compile_id)
        key = (self._epoch, compile_id)
        calls = parse_stack(start.stack, self._strings)
        self._open[key] = calls[-1][0] if calls else None
        if any(at.file.endswith(EXPORTING) for at, _ in calls):
            self._exports.add(key)
        self._callers[key] = find_caller(calls[:-1])

    def _begin_epoch(self) -> None:
        self._epoch += 1
        self._begun.clear()
        self._events.append(wire.DynamoReset(self._t, 0, self._epoch))

    def _add_row(self, metrics: Metrics, line: bytes) -> None:
        self._row_count += 1
        row = make_compiled(metrics, line, self._t, self._epoch)
        again = row.frame.file and (self._epoch, row.compile_id) in self._rows
        if row.forward and again and not self._begun:
            # A trace without records of starts: only rows can show that ids began again.
            self._begin_epoch()
            row = replace(row, epoch=self._epoch)
        timed = self._phases.take_phases(row.compile_id)
        key = (self._epoch, row.compile_id)
        call, thread = None, ""
        self._is_old = self._is_old or metrics.is_old
        if self._torch is None:
            self._torch = get_text(metrics.pytorch_version, 200)
        if not self._python:
            self._python = (get_text(metrics.python_version, 200) or "").partition(" ")[0]
        ended = convert_to_seconds(metrics.end_time_us)
        if self._started_unix is None and ended is not None:
            self._started_unix = ended - self._t
        if row.forward:
            self._rows.add(key)
            if row.frame.file:
                self._frames[_get_frame_key(key)] = row.frame
            self._open.pop(key, None)
            call, thread = self._callers.pop(key, (None, ""))
            call = self._calls.setdefault(call, call)
            if key in self._reasons:
                self._events.append(self._make_recompiled(key, row.frame))
                del self._reasons[key]
        self._events += self._make_size_events(row.compile_id)
        self._events.append(
            replace(
                row,
                phases=timed,
                exported=key in self._exports,
                entered_at=call,
                entered_from=intern(thread),
            )
        )

    def _make_size_events(self, compile_id: str) -> list[wire.Event]:
        guards, left_out = self._sizes.take_guards(compile_id)
        at = (self._t, 0, compile_id, self._epoch)
        return [wire.SizesGuarded(*at, guards, left_out)] if guards else []

    def _add_artifact(self, name: str, payload: bytes, metadata: Metadata) -> None:
        compile_id = format_compile_id(metadata)
        if name == "recompile_reasons":
            self._reasons[self._epoch, compile_id] = (self._t, _parse_reasons(payload))
        elif name == "dynamo_graph_break_reason":
            text = intern_text(payload.decode("utf-8", "replace"), wire.TEXT_LIMIT)
            self._events.append(wire.GraphBroke(self._t, 0, compile_id, self._epoch, text))
        elif name == "torch_version":
            value = parse_json(payload)
            if (fields := parse_object(payload)) is not None:
                value = next((field for key, field in fields.items() if "version" in key), None)
            text = value if isinstance(value, str) else payload.decode("utf-8", "replace")
            self._torch = intern_text(text.strip().strip('"'), 100) or self._torch
        elif name == "inductor_collective_schedule":
            schedule = parse_list(payload) or []
            ops = tuple(intern_text(op, 512) for op in schedule[:MAX_OPERATIONS])
            self._events.append(wire.CollectivesPlanned(self._t, 0, compile_id, self._epoch, ops))
        else:
            self._caches.take(name, payload, (self._t, compile_id, self._epoch), self._events)

    def _make_recompiled(self, key: Key, frame: wire.Location) -> wire.Recompiled:
        t, reasons = self._reasons[key]
        if not frame.file:
            frame = self._open.get(key) or self._frames.get(_get_frame_key(key), _UNKNOWN)
        return wire.Recompiled(t, 0, key[1], key[0], frame, reasons, (), 0.0)

    def _iterate_unended(self) -> Iterator[wire.Event]:
        """Iterate over compiles without an end: the process, or the trace, ended in them."""
        for key in self._reasons:
            yield self._make_recompiled(key, _UNKNOWN)
        for compile_id in self._sizes.open:
            yield from self._make_size_events(compile_id)
        if self._open:
            ids = ", ".join(compile_id for _, compile_id in list(self._open)[:3])
            compiles = "compile" if len(self._open) == 1 else "compiles"
            reason = f"{len(self._open)} {compiles} began and did not end in the trace ({ids})"
            yield wire.EvidenceLost(self._t, 0, "torch_trace", reason)

    def _add_string(self, pair: list[object]) -> str | None:
        """Add a string of the file's table, given with its index; return why if it is lost."""
        index = get_count(pair[1]) if len(pair) == 2 else None
        if index is None or not isinstance(pair[0], str):
            return "bad_json"
        if len(self._strings) < MAX_STRINGS:
            self._strings[index] = intern_text(pair[0])
        if pair[0].endswith(EXPORTING):
            self._events.append(wire.EnvironmentRead(self._t, {"exported": True}))
        return None


def _get_frame_key(key: Key) -> Key:
    """Return the key of a compile's frame: "0/1" is a compile of frame "0"."""
    return key[0], key[1].rpartition("/")[0]


def _parse_reasons(payload: bytes) -> tuple[str, ...]:
    """Parse printed reasons: one is bare text, several are a JSON list."""
    reasons = None
    if payload.startswith(b"["):
        # A list has an item a line, one for each cache entry of the frame: there may be thousands.
        lines = payload.split(b"\n", MAX_REASONS + 1)[1 : MAX_REASONS + 1]
        first = b"[" + b"\n".join(lines).rstrip(b"\n],") + b"]"
        reasons = parse_list(first) or parse_list(payload)
    if reasons is None:
        reasons = [payload.decode("utf-8", "replace")] if payload else []
    return tuple(
        intern_text(reason, 512 if index else 4096)
        for index, reason in enumerate(reasons[:MAX_REASONS])
    )


def find_caller(calls: Sequence[Call]) -> tuple[wire.UserCall | None, str]:
    """Find the innermost call of the program's own among `calls`, the outermost first, that is seen
    to call compiled code; or the thread, where there is none."""
    # The program's file where `python -m` ran it.
    outermost = next((at for at, _ in calls if "runpy" not in at.file), None)
    main = outermost.file if outermost and outermost.function == "<module>" else None
    below = False
    for at, text in reversed(calls):
        below = below or at.file.endswith(_ENTRY)
        typed = not at.file.startswith("<") or at.file.startswith(_TYPED)
        own = at.file == main or (typed and classify_ownership(at.file) == "user")
        if below and at.file and own:
            function = find_resumed_function(at.function) or at.function
            said = intern_text(text, _CALL_CHARS).strip()
            return wire.UserCall(at.file, at.line, function, said), ""
    for at, _ in calls if below else ():
        if not at.file.endswith("/threading.py"):
            name = "/".join(at.file.split("/")[-2:])
            return None, f"a thread ({intern_text(name)}:{at.line} in {at.function})"
    return None, ""
