"""Collectors of compiles: one event for each start, reset and row of torch's compilation metrics.

Also the line of the traced code that needed the value of a dynamic size, and the one that made it a
constant. torch evaluates a condition where the code needs one: at a branch, a reshape, an addition
of two tensors. What follows from it holds for the whole graph. Costs nothing but while something
compiles.
"""

from __future__ import annotations

import os
import types
import weakref
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NamedTuple

from compilediag_harness.base.session import Session
from compilediag_harness.blame import source_locations
from compilediag_harness.blame.user_calls import entered
from compilediag_harness.collectors.memory import Resident, resident
from compilediag_harness.torch_internals import torch_compiles
from compilediag_harness.torch_internals.torch_compiles import PhaseTimes
from compilediag_harness.torch_internals.torch_names import loaded
from compilediag_harness.wire import (
    OPEN_ATTEMPTS_KEPT,
    Compiled,
    CompileMemoryRead,
    CompileStarted,
    DynamoReset,
    Location,
    RepeatedBlocks,
    SizeAttempt,
    SizeGuard,
    SizesGuarded,
    UserCall,
    cache_answers,
    clip,
    clip_middle,
)

_STACK = 16
_CALLS = 24
_TEXT_CHARS = 200
OPERATION = "run_node"
"""Dynamo's call of an operation of the graph with fake tensors."""
_TRACED_FROM = ("step", "symbolic_convert.py")
"""Dynamo's interpreter of one instruction: what is above it is not about the condition."""


class SizeGuardCollector:
    """Collects the size conditions of each attempt to compile, and reports them when it ends."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._attempts: dict[str, SizeAttempt] = {}
        self._env: Any = None
        """Weak reference to what the export in progress knows of sizes: an export has no id."""

    def added(self, env: Any, condition: torch_compiles.SizeCondition) -> None:
        """torch guards a condition; never raises."""
        with self._session.shielded("size condition"):
            attempt = self._attempt(env)
            if not attempt.has_room():
                return
            lines = _lines_of(condition)
            texts = (clip(source_locations.text_of(line) or "", _TEXT_CHARS) for line in lines)
            attempt.guards.append(
                SizeGuard(
                    expression=clip(condition.expression, 1024),
                    sizes=condition.sizes[:32],
                    fixed=(),
                    torch_calls=tuple(_until_traced(condition.frames[:_CALLS])),
                    stack=tuple(lines),
                    texts=tuple(texts),
                )
            )

    def fixed(self, env: Any, sources: tuple[str, ...]) -> None:
        """The condition added last made sizes constants; never raises."""
        with self._session.shielded("size made constant"):
            self._attempt(env).fixed(sources)

    def ended(self, compile_id: str) -> None:
        """An attempt to compile ended: its conditions are reported."""
        attempt = self._attempts.pop(compile_id, None)
        if attempt is not None and attempt.guards:
            epoch, guards = self._session.epoch, tuple(attempt.guards)
            self._session.record(SizesGuarded, compile_id, epoch, guards, attempt.left_out)

    def finish(self) -> None:
        """Reports what has no end: exports, and a compile that ended the program."""
        for compile_id in tuple(self._attempts):
            self.ended(compile_id)

    def _attempt(self, env: Any) -> SizeAttempt:
        compile_id = torch_compiles.current_compile_id()
        if not compile_id and (self._env is None or self._env() is not env):
            self.ended("")
            self._env = weakref.ref(env)
        number = torch_compiles.current_attempt()
        attempt = self._attempts.get(compile_id)
        if attempt is None or attempt.number != number:
            # A restart traces anew: what the attempt before laid down does not hold.
            attempt = self._attempts[compile_id] = SizeAttempt(number)
            if len(self._attempts) > OPEN_ATTEMPTS_KEPT:
                self.ended(next(iter(self._attempts)))
        return attempt


def _lines_of(condition: torch_compiles.SizeCondition) -> list[Location]:
    """List the lines of the traced code. `torch.export` runs it instead: there they are what is no
    part of torch among the calls in progress. The calls below a compiled function are not about its
    sizes."""
    if condition.traced or torch_compiles.current_compile_id():
        lines = [Location(each.filename, each.lineno or 0, each.name) for each in condition.traced]
    else:
        lines = [
            Location(code.co_filename, line, code.co_name)
            for code, line in reversed(condition.frames)
            if not source_locations.is_library(code.co_filename)
        ]
    return lines[-_STACK:]


def _until_traced(frames: Iterable[tuple[types.CodeType, int]]) -> Iterable[str]:
    for code, _ in frames:
        name, file = code.co_name, code.co_filename
        if (name, os.path.basename(file)) == _TRACED_FROM or not source_locations.is_torch(file):
            return
        yield name
        if name == OPERATION:
            return


FEWEST = 4
"""Fewer blocks save too little to be worth another way of compiling."""
WORTH_S = 1.0
"""Modules are looked at for compiles that took longer: counting takes a thousandth of that."""
MAX_MODULES, MAX_VALUES, _MAX_OPEN = 20_000, 200, 256
_RECORDING = "CUDAGRAPH_RECORDING"
_REASON_CHARS = 2048


class _Row(NamedTuple):
    """One row of torch's metrics; its set of fields grows with every release (79 to 99)."""

    metrics: Any

    def field(self, name: str) -> Any:
        return getattr(self.metrics, name, None)

    def seconds(self, name: str) -> float | None:
        value = self.field(name)
        return None if value is None else value / 1e6

    def text(self, name: str) -> str | None:
        value = self.field(name)
        return None if value is None else clip(str(value))


class CompileCollector:
    """Turns metrics rows, start callbacks and resets into events."""

    def __init__(self, session: Session, sizes: SizeGuardCollector) -> None:
        self._session = session
        self._sizes = sizes
        self.phases = PhaseTimes()
        self._entered: dict[str, tuple[UserCall | None, str]] = {}
        """The program's line that compiles in progress were called from, by compile id."""
        self._before: dict[str, Resident] = {}
        """Host memory when they began. Those that torch does not announce, because another is in
        progress, have no record."""
        self.rows = 0
        self.phases_seen = False
        """Whether torch's timing reaches `phases`."""
        self._own_s: dict[str, float] = {}
        """Our own seconds inside a compile in progress, by compile id; taken out of its cost."""

    def started(self, trigger: str, compile_id: str) -> None:
        """A compile began (live view only: nothing is counted from it)."""
        session = self._session
        session.compiled_in_step = True
        compiled = torch_compiles.frame_being_compiled()
        found = entered(session)
        if trigger != _RECORDING:  # which has no row
            self._entered[compile_id] = found
            memory = resident()
            if memory is not None and len(self._before) < _MAX_OPEN:
                self._before[compile_id] = memory
        where = source_locations.location_of(compiled.code) if compiled is not None else None
        session.record(CompileStarted, trigger, compile_id, session.epoch, where, *found)

    def row(self, metrics: Any) -> None:
        """torch recorded a compile; never raises."""
        session = self._session
        self.rows += 1
        session.compiled_in_step = True
        with session.shielded("metrics row"):
            # torch writes a row when a compile has ended: its size conditions are complete.
            self._sizes.ended(str(getattr(metrics, "compile_id", None) or ""))
            made = self._compiled(metrics)
            session.emit(made)
            before = self._before.pop(made.compile_id, None)
            after = resident() if before is not None else None
            if before is None or after is None:
                return
            session.record(
                CompileMemoryRead,
                *(made.compile_id, session.epoch, made.forward),
                before=before.now,
                after=after.now,
                peak_before=before.peak,
                peak_after=after.peak,
            )

    def reset(self) -> None:
        """`torch._dynamo.reset()`: ids start again."""
        # Invariant: a compile id is unique within an epoch only.
        session = self._session
        session.epoch += 1
        for by_id in (self._entered, self._before, self._own_s):
            by_id.clear()
        session.record(DynamoReset, session.epoch)

    def leave_out(self, compile_id: str, seconds: float) -> None:
        """Time of our own inside a compile in progress: it is no part of its cost."""
        self._own_s[compile_id] = self._own_s.get(compile_id, 0.0) + seconds
        self.phases.leave_out(seconds)

    def _compiled(self, metrics: Any) -> Compiled:
        row = _Row(metrics)
        session = self._session
        compile_id = str(row.field("compile_id") or "")
        entered_at, entered_from = self._entered.pop(compile_id, None) or entered(session)
        start, end = row.field("start_time_us"), row.field("end_time_us")
        if start is not None and end is not None and end >= start:
            seconds = (end - start) / 1e6
        else:  # a lazily compiled backward has only its duration
            seconds = row.seconds("duration_us") or 0.0
        # Our own analysis of a recompile lies within torch's times.
        seconds -= self._own_s.pop(compile_id, 0.0)
        compiled = torch_compiles.frame_being_compiled() if seconds >= WORTH_S else None
        timed = self.phases.take() if self.phases_seen else None
        reason = row.field("recompile_reason")
        restarts = row.field("restart_reasons") or ()
        return Compiled(
            t=session.now(),
            step=session.step,
            compile_id=compile_id,
            epoch=session.epoch,
            frame=Location(
                str(row.field("co_filename") or ""),
                int(row.field("co_firstlineno") or 0),
                str(row.field("co_name") or ""),
            ),
            forward=row.field("is_forward") is not False,
            guarded=bool(row.field("has_guarded_code")),
            seconds=max(0.0, seconds),
            # AOTAutograd's time holds the backend's; torch calls this one backend_compile_time.
            backend_s=row.seconds("aot_autograd_cumulative_compile_time_us"),
            graph_ops=row.field("graph_op_count"),
            guards=row.field("guard_count"),
            cache_size=row.field("cache_size"),
            # With the comment that ends it.
            recompile_reason=None if reason is None else clip_middle(str(reason), _REASON_CHARS),
            fail_type=row.text("fail_type"),
            fail_reason=row.text("fail_reason"),
            restart_reasons=tuple(sorted(clip(str(item)) for item in restarts)),
            limit=torch_compiles.recompile_limit(),
            guard_eval_us=row.field("guard_latency_us"),
            cache_hits=cache_answers(row.field, "hit"),
            cache_misses=cache_answers(row.field, "miss"),
            phases=None if timed is None else timed.own,
            phase_spans=() if timed is None else timed.spans,
            restarted_s=row.seconds("dynamo_compile_time_before_restart_us"),
            blocks=None if compiled is None else repeated_blocks(compiled.values or {}),
            exported=torch_compiles.exporting(),
            entered_at=entered_at,
            entered_from=entered_from,
        )


def repeated_blocks(values: Mapping[str, Any]) -> RepeatedBlocks | None:
    """Find the largest group of siblings of one class, with the same parts and the same shapes of
    parameters and buffers, below a module among the local variables of what was compiled. Plain
    layers, which have no parts, are no blocks. None where no group has `MIN_BLOCKS`.

    Args:
        values: local variables of the frame, by name.
    """
    module_type = getattr(loaded("torch.nn"), "Module", None)
    if module_type is None:
        return None
    found: list[RepeatedBlocks] = []
    for name, root in list(values.items())[:MAX_VALUES]:
        modules = list(root.named_modules()) if isinstance(root, module_type) else []
        for path, module in modules if len(modules) <= MAX_MODULES else ():
            children = [one for one in module.children() if any(True for _ in one.children())]
            if len(children) < FEWEST:
                continue
            kinds = [_kind(child) for child in children]
            kind, count = Counter(kinds).most_common(1)[0]
            if count >= FEWEST:
                one = children[kinds.index(kind)]
                parts = count * sum(1 for _ in one.modules())
                where = f"{name}.{path}" if path else name
                found.append(RepeatedBlocks(where, type(one).__name__, count, parts))
    return max(found, key=lambda each: each.modules, default=None)


def _kind(module: Any) -> Hashable:
    named: list[tuple[str, object]] = list(module.named_modules())
    parts = tuple((name, type(part)) for name, part in named)
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return parts, tuple((name, tuple(each.shape), each.dtype) for name, each in tensors)
