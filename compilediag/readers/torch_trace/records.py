"""Records of a process that wait for the row of their compile: lookups of compile caches,
artifacts named for their outcome; conditions on symbolic sizes, with the line of the traced code
that needed the value of a size; and timed phases.

Phases are torch's `chromium_event` records, begin and end. Their thread is always 0, so those of
several threads lie among each other; their compile keeps them apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from compilediag.readers.lines import parse_object
from compilediag.readers.torch_trace.scan import (
    About,
    Call,
    Losses,
    Metadata,
    format_compile_id,
    get_count,
    get_list,
    get_text,
    intern_text,
    parse_stack,
)
from compilediag.timeline.ownership import classify_ownership
from compilediag_harness import wire
from compilediag_harness.wire.compiles import PhaseSeconds, PhaseStack

UNSAVED = "aotautograd_cache_pickle_failure"

_NAMES: dict[str, tuple[str, str]] = {
    **{
        f"{named}_cache_{outcome}": (cache, outcome)
        for named, cache in (("fx_graph", wire.FX_GRAPH), ("aotautograd", wire.AOT_AUTOGRAD))
        for outcome in (wire.HIT, wire.MISS, wire.BYPASS)
    },
    "fx_graph_bundled_cache_hit": (wire.FX_GRAPH, wire.HIT),
    "get_local_code_state": ("pgo_local", wire.HIT),
    "get_remote_code_state": ("pgo_remote", wire.HIT),
}
"""Cache and outcome by torch's name of the artifact; a profile of sizes not there has none."""

ARTIFACTS = (
    b"recompile_reasons", b"dynamo_graph_break_reason", b"torch_version",
    b"inductor_collective_schedule", *(name.encode() for name in (*_NAMES, UNSAVED)),
)  # fmt: skip

_KEY = re.compile(rb'"key": ?"(\w{1,200})"')
_STATUS = re.compile(rb'"cache_status_detailed": ?"(\w{1,40})"')

At = tuple[float, str, int]
"""Time, compile id, epoch."""


class CacheRecords:
    """The lookups of one process."""

    def __init__(self) -> None:
        self._lookups = wire.Lookups()
        self._graphs: list[tuple[tuple[int, str], int]] = []
        """Lookups of graphs since AOTAutograd's last one: compile, and place among the events."""

    def take(self, name: str, payload: bytes, at: At, events: list[wire.Event]) -> None:
        """Append the events of an artifact."""
        t, compile_id, epoch = at
        if name == UNSAVED:
            said = _parse_info(payload)
            field = wire.clean_text(said.get("field"), 100)
            error = wire.clean_text(said.get("error"), 400) + (f" (field {field})" if field else "")
            events.append(wire.CacheWritten(t, 0, wire.AOT_AUTOGRAD, compile_id, epoch, error))
            return
        cache, outcome = _NAMES[name]
        requested = wire.CacheLookedUp(t, 0, cache, outcome, compile_id, epoch)
        info = _parse_info(b"" if cache.startswith("pgo") else payload)
        settings, lookup = self._lookups.describe(requested, info)
        if settings is not None:
            events.append(settings)
        if cache == wire.FX_GRAPH:
            # Invariant: `lookup` is appended last, at this index.
            self._graphs.append(((epoch, compile_id), len(events)))
        elif cache == wire.AOT_AUTOGRAD:
            # An entry of AOTAutograd refers to a graph for the forward and, where it trains, one
            # for the backward, which are looked up just before.
            was_found = outcome == wire.HIT or (outcome == wire.MISS and lookup.status == wire.HIT)
            for owner, index in self._graphs[-2:] if was_found else ():
                graph = events[index]
                if owner == (epoch, compile_id) and isinstance(graph, wire.CacheLookedUp):
                    events[index] = replace(graph, within=wire.AOT_AUTOGRAD)
            self._graphs.clear()
        events.append(lookup)


def _parse_info(payload: bytes) -> Mapping[str, Any]:
    """Parse torch's dictionary; of one that is cut, what stands at its beginning."""
    fields = parse_object(payload)
    if fields is not None:
        return fields
    key, status = _KEY.search(payload, 0, 2_000), _STATUS.search(payload, 0, 2_000)
    read = {"key": key, "cache_status_detailed": status}
    return {name: match[1].decode() for name, match in read.items() if match is not None}


_MAX_SYMBOLS = 512
_STACK = 16
_CALLS = 24
_SYMBOL = re.compile(r"[A-Za-z_]\w{0,63}")
_OWN = ("/symbolic_shapes.py", "/sym_node.py", "/recording.py", "/_logging/_internal.py")
"""Files of what evaluates conditions, and writes the record."""
_TRACER = ("/_dynamo/symbolic_convert.py", "step")
_OPERATION = "run_node"


@dataclass
class _Attempt(wire.SizeAttempt):
    sources: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Sizes by symbol."""


class SizeGuards:
    """The conditions of the compiles in progress of one process, as the live collector has them.
    Of sizes that share a symbol a trace names the first only, unless it became a constant."""

    def __init__(self, strings: Mapping[int, str]) -> None:
        self._strings = strings
        self._attempts: dict[str, _Attempt] = {}

    @property
    def open(self) -> tuple[str, ...]:
        """Compile ids with conditions; "" are the exports."""
        return tuple(key for key, attempt in self._attempts.items() if attempt.guards)

    def take_guards(self, compile_id: str) -> tuple[tuple[wire.SizeGuard, ...], int]:
        """Take the conditions of a compile that ended, and the count of those over the limit."""
        attempt = self._attempts.pop(compile_id, None)
        return (tuple(attempt.guards), attempt.left_out) if attempt is not None else ((), 0)

    def take(self, line: Metadata) -> bool:
        """Take one record; False where it is of another kind."""
        compile_id, number = format_compile_id(line), get_count(line.attempt) or 0
        if line.create_symbol is not None:
            symbol = get_text(line.create_symbol.symbol)
            source = get_text(line.create_symbol.source)
            sources = self._get_attempt(compile_id, number).sources
            if symbol and source and len(sources) < _MAX_SYMBOLS:
                sources[symbol] = [source]
        elif line.guard_added_fast is not None:
            attempt = self._get_attempt(compile_id, number)
            self._add_guard(attempt, line.guard_added_fast, compile_id)
        elif line.symbolic_shape_specialization is not None:
            # A symbol became a constant, by the condition added last.
            sources = get_list(line.symbolic_shape_specialization.sources)[:32]
            texts = [intern_text(source, 256) for source in sources]
            self._get_attempt(compile_id, number).add_fixed_sizes(texts)
        else:
            return False
        return True

    def _get_attempt(self, compile_id: str, number: int) -> _Attempt:
        attempt = self._attempts.get(compile_id)
        if attempt is None or attempt.number != number:
            attempt = self._attempts[compile_id] = _Attempt(number)
            if len(self._attempts) > wire.MAX_OPEN_ATTEMPTS:
                del self._attempts[next(iter(self._attempts))]  # the oldest
        return attempt

    def _add_guard(self, attempt: _Attempt, record: About, compile_id: str) -> None:
        if not attempt.accept_condition():
            return
        expression = intern_text(record.expr, 1024)
        symbols = dict.fromkeys(_SYMBOL.findall(expression))
        calls = parse_stack(record.stack, self._strings)
        traced = parse_stack(record.user_stack, self._strings)
        if not traced and not compile_id:
            # An export runs the code: it stands among the calls in progress.
            traced = [call for call in calls if classify_ownership(call[0].file) != "torch"]
        traced = traced[-_STACK:]
        attempt.guards.append(
            wire.SizeGuard(
                expression=expression,
                sizes=tuple(
                    (symbol, source)
                    for symbol in symbols
                    for source in attempt.sources.get(symbol, ())
                ),
                fixed=(),
                torch_calls=_list_torch_calls(calls),
                stack=tuple(replace(at, function=_get_name(at)) for at, _ in traced),
                texts=tuple(intern_text(text, 200) for _, text in traced),
            )
        )


def _list_torch_calls(stack: list[Call]) -> tuple[str, ...]:
    """List the functions of torch between the traced code and the condition, innermost first."""
    names: list[str] = []
    for at, _ in reversed(stack):
        if not names and at.file.endswith(_OWN):
            continue
        name = _get_name(at)
        is_step = at.file.endswith(_TRACER[0]) and name == _TRACER[1]
        if is_step or classify_ownership(at.file) != "torch" or len(names) == _CALLS:
            break
        names.append(name)
        if name == _OPERATION:
            break
    return tuple(names)


def _get_name(at: wire.Location) -> str:
    return intern_text(at.function, 256)


MAX_STACKS = 12_000
"""Most compiles whose phases are followed: as many as have rows that are stored."""

_MAX_NAME_CHARS = 200
_MAX_MICROSECONDS = 2.0**53


class TracePhases:
    """The phases of the compiles of one process, until their rows come."""

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._seen = False
        self._stacks: dict[str, PhaseStack] = {}
        self._full = False

    def take_record(self, payload: bytes, compile_id: str) -> None:
        """Take one record of `compile_id`; "" is none: an import the first compile waits for."""
        fields = parse_object(payload) or {}
        name, at_us, kind = fields.get("name"), fields.get("ts"), fields.get("ph")
        at_us = at_us if isinstance(at_us, (int, float)) and at_us is not True else -1
        if not (isinstance(name, str) and 0 <= at_us < _MAX_MICROSECONDS):
            self._losses.add("bad_json")
            return
        self._seen = True
        if not compile_id:
            return
        stack = self._stacks.pop(compile_id, None) or PhaseStack()
        if kind == "B":
            stack.begin_phase(name[:_MAX_NAME_CHARS], round(at_us * 1000))
        elif kind == "E":
            stack.end_phase(name[:_MAX_NAME_CHARS], round(at_us * 1000))
        self._store_stack(compile_id, stack)

    def take_phases(self, compile_id: str) -> PhaseSeconds | None:
        """Take the phases of the compile whose row comes now; None without timing, or too many."""
        if not self._seen:
            return None
        stack = self._stacks.pop(compile_id, None)
        if stack is None:
            return None if self._full else ()
        phases = stack.take()
        self._store_stack(compile_id, stack)
        return phases

    def _store_stack(self, compile_id: str, stack: PhaseStack) -> None:
        """Store a stack that holds anything for the row of its compile."""
        if stack.open or stack.own_ns:
            self._full = self._full or len(self._stacks) >= MAX_STACKS
            if not self._full:
                self._stacks[compile_id] = stack
