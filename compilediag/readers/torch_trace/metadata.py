"""The metadata of a trace's records as values: their compile, torch's metrics of it, and lookups of
compile caches, which are artifacts that are named for what they found."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from sys import intern
from typing import Any, NamedTuple, cast

import msgspec

from compilediag.readers.lines import parse_json, parse_object
from compilediag_harness.wire import (
    AOT_AUTOGRAD,
    BYPASS,
    FX_GRAPH,
    HIT,
    MISS,
    CacheLookedUp,
    CacheSettingsRead,
    CacheWritten,
    Compiled,
    Event,
    Location,
    clip,
    lookup_of,
    plain_text,
)

LOOKUPS_WITH_COMPONENTS = 200
"""Lookups of a process whose keys are kept by component, the first ones."""

UNSAVED = "aotautograd_cache_pickle_failure"

_NAMES: dict[str, tuple[str, str]] = {
    **{f"fx_graph_cache_{outcome}": (FX_GRAPH, outcome) for outcome in (HIT, MISS, BYPASS)},
    **{f"aotautograd_cache_{outcome}": (AOT_AUTOGRAD, outcome) for outcome in (HIT, MISS, BYPASS)},
    "fx_graph_bundled_cache_hit": (FX_GRAPH, HIT),
    "get_local_code_state": ("pgo_local", HIT),
    "get_remote_code_state": ("pgo_remote", HIT),
}
"""Cache and outcome by torch's name of the artifact. A profile of sizes that is not there has
none."""

_OF_CACHES = tuple(name.encode() for name in (*_NAMES, UNSAVED))

_KEY = re.compile(rb'"key": ?"(\w{1,200})"')
_STATUS = re.compile(rb'"cache_status_detailed": ?"(\w{1,40})"')

At = tuple[float, str, int]
"""Time, compile id, epoch."""


class CacheRecords:
    """The lookups of one process."""

    def __init__(self) -> None:
        self._with_components = 0
        self._settings: set[str] = set()
        self._graphs: list[tuple[tuple[int, str], int]] = []
        """Lookups of graphs since AOTAutograd's last one: their compile, and their place among the
        process's events."""

    def take(self, name: str, payload: bytes, at: At, events: list[Event]) -> None:
        """Appends what an artifact tells."""
        t, compile_id, epoch = at
        if name == UNSAVED:
            said = _info(payload)
            field = plain_text(said.get("field"), 100)
            problem = plain_text(said.get("error"), 400) + (f" (field {field})" if field else "")
            events.append(CacheWritten(t, 0, AOT_AUTOGRAD, compile_id, epoch, problem))
            return
        cache, outcome = _NAMES[name]
        read = lookup_of({} if cache.startswith("pgo") else _info(payload))
        if read.digest and read.digest not in self._settings:
            self._settings.add(read.digest)
            events.append(CacheSettingsRead(t, read.digest, read.settings))
        self._with_components += bool(read.components)
        kept = self._with_components <= LOOKUPS_WITH_COMPONENTS
        if cache == FX_GRAPH:
            self._graphs.append(((epoch, compile_id), len(events)))
        elif cache == AOT_AUTOGRAD:
            # An entry of AOTAutograd refers to a graph for the forward and, where it trains, one
            # for the backward, which are looked up just before.
            found = outcome == HIT or (outcome == MISS and read.status == HIT)
            for owner, index in self._graphs[-2:] if found else ():
                graph = events[index]
                if owner == (epoch, compile_id) and isinstance(graph, CacheLookedUp):
                    events[index] = replace(graph, within=AOT_AUTOGRAD)
            self._graphs.clear()
        events.append(
            CacheLookedUp(
                t=t,
                step=0,
                cache=cache,
                outcome=outcome,
                compile_id=compile_id,
                epoch=epoch,
                key=read.key,
                status=read.status,
                reason=read.reason,
                saved_s=read.saved_s,
                components=read.components if kept else (),
                components_left_out=read.components_left_out
                + (0 if kept else len(read.components)),
                settings=read.digest,
            )
        )


def _info(payload: bytes) -> Mapping[str, Any]:
    """torch's dictionary; of one that is cut what stands at its beginning."""
    found = parse_object(payload)
    if found is not None:
        return found
    key, status = _KEY.search(payload, 0, 2_000), _STATUS.search(payload, 0, 2_000)
    read = {"key": key, "cache_status_detailed": status}
    return {name: match[1].decode() for name, match in read.items() if match is not None}


MAX_TEXT_CHARS = 4096
"""Longest reason kept from a metrics row."""

_LIMIT = re.compile(rb'\\"recompile_limit\\": (\d{1,9})')
_MAX_COUNT = 2**53
"""Larger numbers than this are no counts."""

_CACHES = ("inductor_fx_local", "inductor_fx_remote", "aotautograd_local", "aotautograd_remote")


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


class Start(msgspec.Struct):
    """The stack at which a compile began; its last entry is the frame itself."""

    stack: Any = None


class SizeGuardRecord(msgspec.Struct):
    """A symbol that was made, a condition on symbols, or a symbol that became a constant."""

    expr: Any = None
    symbol: Any = None
    source: Any = None
    sources: Any = None
    user_stack: Any = None
    stack: Any = None


class StackEntry(NamedTuple):
    """One call of a stack. `file`: index of its interned name; the others of any type."""

    file: int
    line: int
    function: Any
    text: Any


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
    create_symbol: SizeGuardRecord | None = None
    guard_added_fast: SizeGuardRecord | None = None
    symbolic_shape_specialization: SizeGuardRecord | None = None
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
    b"compilation_metrics",
    b"bwd_compilation_metrics",
    b"aot_autograd_backward_compilation_metrics",
    b"dynamo_start",
    b"create_symbol",
    b"guard_added_fast",
    b"symbolic_shape_specialization",
    b"str",
    b"chromium_event",
)
"""Kinds that are decoded, beside artifacts; rows of what happens at run time are no attempts."""

ARTIFACTS = (
    b"recompile_reasons",
    b"dynamo_graph_break_reason",
    b"torch_version",
    b"inductor_collective_schedule",
    *_OF_CACHES,
)

_DECODER = msgspec.json.Decoder(Metadata)


def decode(line: bytes) -> Metadata | None:
    """A line of metadata; None where it is no JSON object of the known shape. Never raises."""
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


def compile_id_of(line: Metadata) -> str:
    """torch's id of the record's compile, without the attempt: "0/1", "!1/0/1"."""
    frame, index = count_of(line.frame_id), count_of(line.frame_compile_id)
    autograd = count_of(line.compiled_autograd_id)
    parts = [] if autograd is None else [f"!{autograd}"]
    parts += [] if frame is None or index is None else [f"{frame}/{index}"]
    return "/".join(parts)


@lru_cache(maxsize=1024)
def compile_id_in(line: bytes) -> str:
    """The same of a line of metadata that many records have; "" where it has none."""
    metadata = decode(line)
    return "" if metadata is None else compile_id_of(metadata)


def compiled_of(metrics: Metrics, line: bytes, t: float, epoch: int) -> Compiled:
    """The event that the live collector makes of the same row, of step 0."""
    # torch's configuration, which holds the limit, is JSON within a JSON string of 40 kB.
    limit = _LIMIT.search(line)
    restarts = items_of(metrics.restart_reasons)
    # torch 2.7 sets `has_guarded_code` for a frame that it gave up at a break in a loop: its row
    # has neither a graph nor the count of intermediate results that a completed trace has.
    gave_up = metrics.graph_op_count is None and metrics.ir_count is None
    # A lazily compiled backward may have only its duration.
    start_us, end_us = _number(metrics.start_time_us), _number(metrics.end_time_us)
    seconds = seconds_of(metrics.duration_us) or 0.0
    if start_us is not None and end_us is not None and end_us >= start_us:
        seconds = (end_us - start_us) / 1e6
    return Compiled(
        t=t,
        step=0,
        compile_id=text_of(metrics.compile_id, 100) or "",
        epoch=epoch,
        frame=Location(
            text_of(metrics.co_filename) or "",
            count_of(metrics.co_firstlineno) or 0,
            text_of(metrics.co_name) or "",
        ),
        forward=metrics.is_forward is not False,
        guarded=metrics.has_guarded_code is True and not gave_up,
        seconds=seconds,
        backend_s=seconds_of(metrics.aot_autograd_cumulative_compile_time_us),
        graph_ops=count_of(metrics.graph_op_count),
        guards=count_of(metrics.guard_count),
        cache_size=count_of(metrics.cache_size),
        recompile_reason=text_of(metrics.recompile_reason),
        fail_type=text_of(metrics.fail_type),
        fail_reason=text_of(metrics.fail_reason),
        restart_reasons=tuple(sorted(short_text(item) for item in restarts[:16])),
        limit=int(limit[1]) if limit else None,
        guard_eval_us=_number(metrics.guard_latency_us),
        cache_hits=_cache_count(metrics, "hit"),
        cache_misses=_cache_count(metrics, "miss"),
        restarted_s=seconds_of(metrics.dynamo_compile_time_before_restart_us),
    )


def frame_of_start(start: Start) -> tuple[int, int, str] | None:
    """The frame a compile began with: index of its interned file, first line, name."""
    entries = items_of(start.stack)
    frame = entries[-1] if entries else None
    if not isinstance(frame, dict):
        return None
    fields = cast(dict[str, Any], frame)
    file, line = count_of(fields.get("filename")), count_of(fields.get("line"))
    return None if file is None or line is None else (file, line, text_of(fields.get("name")) or "")


def calls_of_stack(stack: Any) -> list[StackEntry]:
    """A recorded stack as far as it can be read, outermost call first."""
    found: list[StackEntry] = []
    for entry in items_of(stack):
        fields = cast(dict[str, Any], entry) if type(entry) is dict else {}
        file = count_of(fields.get("filename"))
        if file is not None:
            line = count_of(fields.get("line")) or 0
            found.append(StackEntry(file, line, fields.get("name"), fields.get("loc")))
    return found


def short_text(value: Any, limit: int = MAX_TEXT_CHARS) -> str:
    """A value as text of bounded length. Records repeat texts: each is kept once."""
    return intern(clip(str(value), limit))


def items_of(value: Any) -> list[Any]:
    """A JSON list; empty where it is none."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def _cache_count(metrics: Metrics, outcome: str) -> int | None:
    """Hits or misses of all of torch's caches; None where the row has none of these counts."""
    values = (getattr(metrics, f"{cache}_cache_{outcome}_count") for cache in _CACHES)
    known = [count for value in values if (count := count_of(value)) is not None]
    return sum(known) if known else None


def text_of(value: Any, limit: int = MAX_TEXT_CHARS) -> str | None:
    """The value as text of bounded length; None where there is none."""
    return None if value is None or value is msgspec.UNSET else short_text(value, limit)


def count_of(value: Any) -> int | None:
    """A count; None where the value is none."""
    return value if type(value) is int and 0 <= value < _MAX_COUNT else None


def _number(value: Any) -> float | None:
    known = type(value) is int or type(value) is float
    return float(value) if known and 0 <= value < _MAX_COUNT else None


def seconds_of(value: Any) -> float | None:
    """Microseconds as seconds; None where the value is no number."""
    number = _number(value)
    return None if number is None else number / 1e6
