"""The metadata of a trace's records as values: what compile they are of, torch's metrics of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import msgspec

from compilediag.readers import lenient_json
from compilediag_harness.wire import Compiled, Location, clip

TEXT_KEPT = 4096
"""Longest reason kept from a metrics row, in characters."""

_LIMIT_NAME = b'\\"recompile_limit\\": '
_LIMIT = re.compile(re.escape(_LIMIT_NAME) + rb"(\d{1,9})")
_MOST = 2**53
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
    has_guarded_code: Any = None
    is_forward: Any = None
    recompile_reason: Any = None
    guard_latency_us: Any = None
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


class Start(msgspec.Struct):
    """The stack at which a compile began; its last entry is the frame itself."""

    stack: Any = None


class Named(msgspec.Struct):
    """An artifact's name."""

    name: Any = None


class Metadata(msgspec.Struct):
    """One line of metadata; the field of the event is the one that is set."""

    compilation_metrics: Metrics | None = None
    bwd_compilation_metrics: Metrics | None = None
    aot_autograd_backward_compilation_metrics: Metrics | None = None
    dynamo_start: Start | None = None
    artifact: Named | None = None
    str: Any = None
    rank: Any = None
    compiled_autograd_id: Any = None
    frame_id: Any = None
    frame_compile_id: Any = None
    attempt: Any = None

    @property
    def metrics(self) -> Metrics | None:
        """The metrics row, whichever of its spellings it has."""
        return (
            self.compilation_metrics
            or self.bwd_compilation_metrics
            or self.aot_autograd_backward_compilation_metrics
        )


WANTED = (
    b"compilation_metrics",
    b"bwd_compilation_metrics",
    b"aot_autograd_backward_compilation_metrics",
    b"dynamo_start",
    b"str",
)
"""Kinds that are decoded, beside artifacts; rows of what happens at run time are no attempts."""

ARTIFACTS = (
    b"recompile_reasons",
    b"dynamo_graph_break_reason",
    b"torch_version",
    b"inductor_collective_schedule",
)

_DECODER = msgspec.json.Decoder(Metadata)


def decode(line: bytes) -> Metadata | None:
    """A line of metadata; None where it is no JSON object of the known shape. Never raises."""
    try:
        return _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    # Python writes NaN, which is no JSON; a bad byte costs one character, not the line.
    raw = lenient_json.parse(line)
    try:
        return msgspec.convert(raw, Metadata) if isinstance(raw, dict) else None
    except (msgspec.ValidationError, RecursionError, OverflowError):
        return None


def compile_id_of(line: Metadata) -> str:
    """torch's spelling of the compile the record is of, without the attempt: "0/1", "!1/0/1"."""
    frame, number = _count(line.frame_id), _count(line.frame_compile_id)
    autograd = _count(line.compiled_autograd_id)
    prefix = "" if autograd is None else f"!{autograd}"
    if frame is None or number is None:
        return prefix
    return f"{prefix}/{frame}/{number}" if prefix else f"{frame}/{number}"


def compiled_of(
    metrics: Metrics, line: bytes, t: float, epoch: int, shared: Callable[[str], str] = str
) -> Compiled:
    """The event that the live collector makes of the same row, of step 0.

    `shared` gives the first of equal texts: rows say the same of their frames again and again.
    """
    # A search for text alone goes through 40 kB at ten times the speed of an expression.
    named = line.find(_LIMIT_NAME)
    limit = None if named < 0 else _LIMIT.search(line, named)
    restarts = _items(metrics.restart_reasons)
    return Compiled(
        t=t,
        step=0,
        compile_id=_text(metrics.compile_id, 100) or "",
        epoch=epoch,
        frame=_place(
            _text(metrics.co_filename) or "",
            _count(metrics.co_firstlineno) or 0,
            _text(metrics.co_name) or "",
        ),
        forward=metrics.is_forward is not False,
        guarded=metrics.has_guarded_code is True and not _gave_up(metrics),
        seconds=_seconds(metrics),
        backend_s=_microseconds(metrics.aot_autograd_cumulative_compile_time_us),
        graph_ops=_count(metrics.graph_op_count),
        guards=_count(metrics.guard_count),
        cache_size=_count(metrics.cache_size),
        recompile_reason=_kept(metrics.recompile_reason, shared),
        fail_type=_text(metrics.fail_type),
        fail_reason=_kept(metrics.fail_reason, shared),
        restart_reasons=tuple(sorted(shared(_told(item)) for item in restarts[:16])),
        limit=int(limit[1]) if limit else None,
        guard_eval_us=_number(metrics.guard_latency_us),
        cache_hits=_sum(
            metrics.inductor_fx_local_cache_hit_count,
            metrics.inductor_fx_remote_cache_hit_count,
            metrics.aotautograd_local_cache_hit_count,
            metrics.aotautograd_remote_cache_hit_count,
        ),
        cache_misses=_sum(
            metrics.inductor_fx_local_cache_miss_count,
            metrics.inductor_fx_remote_cache_miss_count,
            metrics.aotautograd_local_cache_miss_count,
            metrics.aotautograd_remote_cache_miss_count,
        ),
    )


def ended_at(metrics: Metrics) -> float | None:
    """When the attempt ended, in seconds since 1970."""
    return _microseconds(metrics.end_time_us)


def frame_of_start(start: Start) -> tuple[int, int, str] | None:
    """The frame a compile began with: number of its interned file, first line, name."""
    entries = _items(start.stack)
    frame = entries[-1] if entries else None
    if not isinstance(frame, dict):
        return None
    fields: dict[str, Any] = frame  # pyright: ignore[reportUnknownVariableType]
    file, line = _count(fields.get("filename")), _count(fields.get("line"))
    return None if file is None or line is None else (file, line, _text(fields.get("name")) or "")


def interned_of(value: Any) -> tuple[int, str] | None:
    """A string of the file's table, with its number."""
    items = _items(value)
    if len(items) != 2 or not isinstance(items[0], str):
        return None
    number = _count(items[1])
    return None if number is None else (number, items[0])


def rank_of(line: Metadata) -> int | None:
    """The rank that the record itself tells."""
    return _count(line.rank)


def attempt_of(line: Metadata) -> int:
    """0 for the first attempt of a compile, more after restarts."""
    return _count(line.attempt) or 0


def text_of(value: Any) -> str | None:
    """A short text field."""
    return _text(value, 200)


def _gave_up(metrics: Metrics) -> bool:
    """torch 2.7 calls a frame guarded that it gave up at a break in a loop: such a row has neither
    a graph nor the count of intermediate results that torch fills where tracing ended well."""
    return metrics.graph_op_count is None and metrics.ir_count is None


def _seconds(metrics: Metrics) -> float:
    """Wall seconds of the attempt. A lazily compiled backward may have only its duration."""
    start, end = _number(metrics.start_time_us), _number(metrics.end_time_us)
    if start is not None and end is not None and end >= start:
        return (end - start) / 1e6
    return _microseconds(metrics.duration_us) or 0.0


def _items(value: Any) -> list[Any]:
    """A JSON list; empty where it is none."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def _sum(*values: Any) -> int | None:
    """Added up; None where torch told none of them."""
    known = [count for value in values if (count := _count(value)) is not None]
    return sum(known) if known else None


def _text(value: Any, limit: int = TEXT_KEPT) -> str | None:
    return None if value is None else clip(str(value), limit)


@lru_cache(maxsize=256)
def _place(file: str, line: int, function: str) -> Location:
    """Remembered: a frame has many rows, and many ranks have the same frames."""
    return Location(file, line, function)


def _kept(value: Any, shared: Callable[[str], str]) -> str | None:
    return None if value is None else shared(_told(value))


def _told(value: Any) -> str:
    return clip(str(value), TEXT_KEPT)


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < _MOST else None


def _number(value: Any) -> float | None:
    known = type(value) is int or type(value) is float
    return float(value) if known and 0 <= value < _MOST else None


def _microseconds(value: Any) -> float | None:
    number = _number(value)
    return None if number is None else number / 1e6
