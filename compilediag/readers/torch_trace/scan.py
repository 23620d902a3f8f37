"""TORCH_TRACE bytes split into records: a line of metadata, and the payload below it; and the
metadata as values: the compile of a record, torch's metrics of it, stacks.

    V1121 14:17:00.227000 1679 torch/_dynamo/utils.py:2350] {"artifact": {"name": ...}, ...}
    <tab>first line of the payload

Only wanted kinds are decoded; the others are skipped. Memory is bounded by one chunk, one line and
one payload, and nothing here raises, whatever the file holds.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from sys import intern
from typing import Any, NamedTuple, cast

import msgspec

from compilediag.readers.lines import parse_json
from compilediag_harness.wire import Compiled, Location, clip, count_cache_outcomes

LINE_LIMIT = 8 << 20
"""Longest line of metadata in bytes. torch's own are 40 kB, of large graphs some MB."""

PAYLOAD_LIMIT = 1 << 20
"""Longest payload of a wanted record in bytes; torch's own are some kB, but for `HEADS`."""

HEADS = re.compile(
    rb'artifact": \{"name": "(?:recompile_reasons|fx_graph_\w*cache|aotautograd_cache)'
)
"""Records of which the beginning of the payload is enough: torch prints a reason for each cache
entry of a frame, and the first few are used; a lookup of a compile cache holds the whole graph."""

TIMING = "chromium_event"
"""The kind of a timed phase's begin or end. There are more of them than of all others together."""

# The event is the first key of the object, and its quotation mark the first of the line.
_RECORD = rb'.\d{4} [^"\n]{20,4096}(?<=\] \{)"'
_HEAD = re.compile(
    rb"[VDIWEC](\d{4} \d\d:\d\d):(\d\d\.\d{1,9}) (\d{1,20}) ?[^\"]{0,4096}(?<=\] \{)\"(\w{1,80})\""
)
_HASH = re.compile(rb'"has_payload": ?"([0-9a-f]{32})"')


_DAYS_BEFORE = (0, 0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)
"""Days of a leap year before each month: the log lines have no year."""


class TextBlock(NamedTuple):
    """A line that begins without a tab, and the lines that follow it and begin with one."""

    text: bytes
    ended: bool = True
    """Whether the end of its last line is there."""
    last: bool = False


class TraceRecord(NamedTuple):
    """One wanted record."""

    kind: str
    """The event, which is the first key: "compilation_metrics", "artifact"."""
    minute: bytes
    second: bytes
    """Local time, b"1121 14:17" and b"00.227000"."""
    pid: int
    metadata: bytes
    payload: bytes

    @property
    def at_s(self) -> float:
        """Local time as seconds since the beginning of the year."""
        return _compute_minute_s(self.minute) + float(self.second)


@dataclass(slots=True)
class Losses:
    """The records of a file that could not be used, by reason."""

    counts: Counter[str] = field(default_factory=Counter[str])
    torn: bool = False

    def add(self, reason: str) -> None:
        self.counts[reason] += 1


class TraceScanner:
    """Finds the records of one file; `losses` is complete when `iterate_records` has ended."""

    def __init__(self, kinds: Iterable[bytes], artifacts: Iterable[bytes]) -> None:
        names = b"|".join(map(re.escape, artifacts))
        wanted = [re.escape(kind) + b'"' for kind in kinds]
        wanted.append(b'artifact": \\{"name": "(?:%s)"' % names)
        unwanted = b"%s(?!%s)" % (_RECORD, b"|".join(wanted))
        self._unwanted = re.compile(unwanted, re.DOTALL)
        # A line that begins with anything but a tab begins a record, or is none of torch's. What is
        # not wanted is passed over by the search for the next such line.
        self._begin = re.compile(b"\n(?=[^\t])(?:%s)?" % unwanted, re.DOTALL)
        self.losses = Losses()

    def iterate_records(self, chunks: Iterable[bytes]) -> Iterator[TraceRecord]:
        """Iterate over the wanted records, in the order of the file."""
        for block in self._split_blocks(chunks):
            if (record := self._parse_record(block)) is not None:
                yield record

    def _split_blocks(self, chunks: Iterable[bytes]) -> Iterator[TextBlock]:
        """Split a file into blocks: wanted ones, and any at a chunk's end; cut to the limits."""
        limit = LINE_LIMIT + PAYLOAD_LIMIT
        rest = bytearray()
        newline = b""
        for chunk in chunks:
            text = newline + chunk
            begin, is_wanted = 0, True
            for match in self._begin.finditer(text):
                if begin == 0:
                    rest += text[: min(match.start(), limit - len(rest))]
                    yield TextBlock(bytes(rest))
                    rest.clear()
                elif is_wanted:
                    yield TextBlock(text[begin : min(match.start(), begin + limit)])
                begin = match.start() + 1
                is_wanted = match.end() == begin
            rest += text[begin : begin + limit - len(rest)]
            # What follows the last line end decides whether it ends the block.
            newline = b"\n" if rest.endswith(b"\n") else b""
            del rest[len(rest) - len(newline) :]
        if rest:
            yield TextBlock(bytes(rest), ended=bool(newline), last=True)

    def _parse_record(self, block: TextBlock) -> TraceRecord | None:
        """Parse a line of metadata and its payload; None where it is not wanted, or not whole."""
        line, newline, payload = block.text.partition(b"\n")
        if not line.strip(b"\r") or line.startswith(b"\t"):
            return None
        if not block.ended and not newline and not line.rstrip().endswith(b"}"):
            self.losses.torn = True
            return None
        if self._unwanted.match(line):
            return None
        head = _HEAD.match(line)
        hashed = _HASH.search(line, max(0, len(line) - 200))
        if len(line) > LINE_LIMIT:
            self.losses.add("too_long")
            return None
        may_cut = head is not None and HEADS.match(line, head.start(4)) is not None
        whole: bytes | None = b""
        if hashed is not None:
            whole = self._read_payload(payload, hashed[1], may_cut, last=block.last)
        if whole is None:
            return None
        if head is None:
            self.losses.add("bad_prefix")
            return None
        kind, metadata = head[4].decode("ascii", "replace"), line[head.start(4) - 2 :]
        return TraceRecord(kind, head[1], head[2], int(head[3]), metadata, whole)

    def _read_payload(self, raw: bytes, md5: bytes, may_cut: bool, *, last: bool) -> bytes | None:
        """Return the payload as torch wrote it, or its beginning; None where it is lost."""
        if len(raw) > PAYLOAD_LIMIT:
            if may_cut:
                return _remove_tabs(raw[:PAYLOAD_LIMIT])
            self.losses.add("too_long")
            return None
        payload = _remove_tabs(raw)
        # `trace_structured` (torch/_logging/_internal.py) hashes the payload without the tabs.
        if hashlib.md5(payload, usedforsecurity=False).hexdigest().encode() == md5:
            return payload
        if last:
            self.losses.torn = True
        else:
            self.losses.add("bad_payload_hash")
        return None


def _remove_tabs(raw: bytes) -> bytes:
    """Remove the tab that each line begins with."""
    return raw.replace(b"\n\t", b"\n")[1:]


@lru_cache(maxsize=16)
def _compute_minute_s(minute: bytes) -> float:
    """Compute the seconds from the beginning of the year to a minute: b"1121 14:17"."""
    month, day = divmod(int(minute[:4]), 100)
    days = _DAYS_BEFORE[min(month, 12)] + day
    return days * 86400.0 + int(minute[5:7]) * 3600 + int(minute[8:]) * 60


# --- metadata ----------------------------------------------------------------------------------

MAX_TEXT_CHARS = 4096
"""Longest reason stored of a metrics row."""

_LIMIT = re.compile(rb'\\"recompile_limit\\": (\d{1,9})')
_MAX_COUNT = 2**53
"""Larger numbers than this are no counts."""


class Metrics(msgspec.Struct):
    """The fields of a metrics row that are used, of any type: torch adds and changes fields."""

    compile_id: Any = None
    co_name: Any = None
    co_filename: Any = None
    co_firstlineno: Any = None
    cache_size: Any = None
    guard_count: Any = None
    graph_op_count: Any = None
    ir_count: Any = msgspec.UNSET
    start_time_us: Any = None
    end_time_us: Any = None
    duration_us: Any = None
    aot_autograd_cumulative_compile_time_us: Any = None
    fail_type: Any = None
    fail_reason: Any = None
    restart_reasons: Any = None
    dynamo_compile_time_before_restart_us: Any = None
    has_guarded_code: Any = None
    is_forward: Any = None
    recompile_reason: Any = msgspec.UNSET
    guard_latency_us: Any = msgspec.UNSET
    inductor_fx_local_cache_hit_count: Any = None
    inductor_fx_local_cache_miss_count: Any = None
    inductor_fx_remote_cache_hit_count: Any = None
    inductor_fx_remote_cache_miss_count: Any = None
    aotautograd_local_cache_hit_count: Any = None
    aotautograd_local_cache_miss_count: Any = None
    aotautograd_remote_cache_hit_count: Any = None
    aotautograd_remote_cache_miss_count: Any = None
    pytorch_version: Any = None
    python_version: Any = None

    @property
    def is_old(self) -> bool:
        """Written by a torch before 2.7, which has neither of these fields and names no version;
        since then each row has both, null where there is nothing to say."""
        return self.recompile_reason is msgspec.UNSET and self.guard_latency_us is msgspec.UNSET


class About(msgspec.Struct):
    """Facts of other records: the start of a compile has its stack, whose last entry is the frame
    itself; an artifact its name; the others of a symbol that was made, of a condition on symbols,
    or of a symbol that became a constant."""

    name: Any = None
    stack: Any = None
    expr: Any = None
    symbol: Any = None
    source: Any = None
    sources: Any = None
    user_stack: Any = None


class Metadata(msgspec.Struct):
    """One line of metadata; the field of the event is the one that is set."""

    compilation_metrics: Metrics | None = None
    bwd_compilation_metrics: Metrics | None = None
    aot_autograd_backward_compilation_metrics: Metrics | None = None
    dynamo_start: About | None = None
    artifact: About | None = None
    create_symbol: About | None = None
    guard_added_fast: About | None = None
    symbolic_shape_specialization: About | None = None
    str: Any = None
    rank: Any = None
    compiled_autograd_id: Any = None
    frame_id: Any = None
    frame_compile_id: Any = None
    attempt: Any = None

    @property
    def metrics(self) -> Metrics | None:
        """The metrics row, under whichever of its names."""
        return (
            self.compilation_metrics
            or self.bwd_compilation_metrics
            or self.aot_autograd_backward_compilation_metrics
        )


WANTED = (
    b"compilation_metrics", b"bwd_compilation_metrics",
    b"aot_autograd_backward_compilation_metrics", b"dynamo_start", b"create_symbol",
    b"guard_added_fast", b"symbolic_shape_specialization", b"str", b"chromium_event",
)  # fmt: skip
"""Kinds that are decoded, beside artifacts; rows of what happens at run time are no attempts."""

_DECODER = msgspec.json.Decoder(Metadata)


def decode_metadata(line: bytes) -> Metadata | None:
    """Decode a line of metadata; None where it is no object of the known shape. Never raises."""
    try:
        return _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    # Python writes NaN, which is no JSON; a bad byte costs one character, not the line.
    raw = parse_json(line)
    try:
        return msgspec.convert(raw, Metadata) if isinstance(raw, dict) else None
    except (msgspec.ValidationError, RecursionError, OverflowError):
        return None


def format_compile_id(line: Metadata) -> str:
    """Format torch's id of the record's compile, without the attempt: "0/1", "!1/0/1"."""
    frame, index = get_count(line.frame_id), get_count(line.frame_compile_id)
    autograd = get_count(line.compiled_autograd_id)
    parts = [] if autograd is None else [f"!{autograd}"]
    parts += [] if frame is None or index is None else [f"{frame}/{index}"]
    return "/".join(parts)


def make_compiled(metrics: Metrics, line: bytes, t: float, epoch: int) -> Compiled:
    """Make the event that the live collector makes of the same row, of step 0."""
    # torch's configuration, which holds the limit, is JSON within a JSON string of 40 kB.
    limit = _LIMIT.search(line)
    restarts = get_list(metrics.restart_reasons)
    # torch 2.7 sets `has_guarded_code` for a frame that it gave up at a break in a loop: its row
    # has neither a graph nor the count of intermediate results that a completed trace has.
    gave_up = metrics.graph_op_count is None and metrics.ir_count is None
    # A lazily compiled backward may have only its duration.
    start_us, end_us = _get_number(metrics.start_time_us), _get_number(metrics.end_time_us)
    seconds = convert_to_seconds(metrics.duration_us) or 0.0
    if start_us is not None and end_us is not None and end_us >= start_us:
        seconds = (end_us - start_us) / 1e6

    def get_metric_count(name: str) -> int | None:
        return get_count(getattr(metrics, name))

    return Compiled(
        t=t,
        step=0,
        compile_id=get_text(metrics.compile_id, 100) or "",
        epoch=epoch,
        frame=Location(
            get_text(metrics.co_filename) or "",
            get_count(metrics.co_firstlineno) or 0,
            get_text(metrics.co_name) or "",
        ),
        forward=metrics.is_forward is not False,
        guarded=metrics.has_guarded_code is True and not gave_up,
        seconds=seconds,
        backend_s=convert_to_seconds(metrics.aot_autograd_cumulative_compile_time_us),
        graph_ops=get_count(metrics.graph_op_count),
        guards=get_count(metrics.guard_count),
        cache_size=get_count(metrics.cache_size),
        recompile_reason=get_text(metrics.recompile_reason),
        fail_type=get_text(metrics.fail_type),
        fail_reason=get_text(metrics.fail_reason),
        restart_reasons=tuple(sorted(intern_text(reason) for reason in restarts[:16])),
        limit=int(limit[1]) if limit else None,
        guard_eval_us=_get_number(metrics.guard_latency_us),
        cache_hits=count_cache_outcomes(get_metric_count, "hit"),
        cache_misses=count_cache_outcomes(get_metric_count, "miss"),
        restarted_s=convert_to_seconds(metrics.dynamo_compile_time_before_restart_us),
    )


Call = tuple[Location, str]
"""One call of a stack, and its source text."""


def parse_stack(stack: Any, files: Mapping[int, str]) -> list[Call]:
    """Parse a recorded stack as far as possible, outermost call first. `files`: interned names."""
    calls: list[Call] = []
    for entry in get_list(stack):
        fields = cast(dict[str, Any], entry) if type(entry) is dict else {}
        file = get_count(fields.get("filename"))
        if file is not None:
            line = get_count(fields.get("line")) or 0
            function = get_text(fields.get("name")) or ""
            text = get_text(fields.get("loc")) or ""
            calls.append((Location(files.get(file, ""), line, function), text))
    return calls


def intern_text(value: Any, limit: int = MAX_TEXT_CHARS) -> str:
    """Clip a value's text to a length and intern it: records repeat texts, each is stored once."""
    return intern(clip(str(value), limit))


def get_list(value: Any) -> list[Any]:
    """Return a JSON list; empty where the value is none."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def get_text(value: Any, limit: int = MAX_TEXT_CHARS) -> str | None:
    """Return the value as text of bounded length; None where there is none."""
    return None if value is None or value is msgspec.UNSET else intern_text(value, limit)


def get_count(value: Any) -> int | None:
    """Return a count; None where the value is none."""
    return value if type(value) is int and 0 <= value < _MAX_COUNT else None


def _get_number(value: Any) -> float | None:
    known = type(value) is int or type(value) is float
    return float(value) if known and 0 <= value < _MAX_COUNT else None


def convert_to_seconds(value: Any) -> float | None:
    """Convert microseconds to seconds; None where the value is no number."""
    number = _get_number(value)
    return None if number is None else number / 1e6
