"""Collectors of compiles: one event for each start, reset and row of torch's compilation metrics.

Also the line of the traced code that needed the value of a dynamic size, and the one that made it a
constant. torch evaluates a condition where the code needs one: at a branch, a reshape, an addition
of two tensors. What follows from it holds for the whole graph. It costs only during compiles.
"""

from __future__ import annotations

import os
import sys
import types
import weakref
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NamedTuple

from compilediag_harness.base.session import Session
from compilediag_harness.blame import source_locations
from compilediag_harness.blame.user_calls import find_user_call_or_thread
from compilediag_harness.torch_internals import torch_compiles
from compilediag_harness.torch_internals.torch_compiles import PhaseTimes
from compilediag_harness.torch_internals.torch_names import get_imported
from compilediag_harness.wire import (
    MAX_OPEN_ATTEMPTS,
    Compiled,
    CompileStarted,
    DynamoReset,
    Location,
    RepeatedBlocks,
    SizeAttempt,
    SizeGuard,
    SizesGuarded,
    UserCall,
    clip,
    clip_middle,
    count_cache_outcomes,
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

    def record_condition(self, env: Any, condition: torch_compiles.SizeCondition) -> None:
        """torch guards a condition; never raises."""
        with self._session.catch_faults("size condition"):
            attempt = self._get_attempt(env)
            if not attempt.accept_condition():
                return
            lines = _list_lines(condition)
            read = source_locations.read_source_line
            texts = (clip(read(line) or "", _TEXT_CHARS) for line in lines)
            attempt.guards.append(
                SizeGuard(
                    expression=clip(condition.expression, 1024),
                    sizes=condition.sizes[:32],
                    fixed=(),
                    torch_calls=tuple(_iterate_torch_calls(condition.frames[:_CALLS])),
                    stack=tuple(lines),
                    texts=tuple(texts),
                )
            )

    def record_fixed_sizes(self, env: Any, sources: tuple[str, ...]) -> None:
        """The condition added last made sizes constants; never raises."""
        with self._session.catch_faults("size made constant"):
            self._get_attempt(env).add_fixed_sizes(sources)

    def report_attempt(self, compile_id: str) -> None:
        """A compile ended: the conditions of its last attempt are reported."""
        attempt = self._attempts.pop(compile_id, None)
        if attempt is None or not attempt.guards:
            return
        # The last attempt may have met no condition, so that an earlier one is still kept.
        ended = compile_id and compile_id == torch_compiles.get_compile_id()
        if not ended or attempt.number == torch_compiles.get_attempt():
            epoch, guards = self._session.epoch, tuple(attempt.guards)
            self._session.emit_in_step(SizesGuarded, compile_id, epoch, guards, attempt.left_out)

    def finish(self) -> None:
        """Reports what has no end: exports, and a compile that ended the program."""
        for compile_id in tuple(self._attempts):
            self.report_attempt(compile_id)

    def _get_attempt(self, env: Any) -> SizeAttempt:
        compile_id = torch_compiles.get_compile_id()
        # Invariant: weak: what torch knows of an export must go when torch drops it.
        if not compile_id and (self._env is None or self._env() is not env):
            self.report_attempt("")
            self._env = weakref.ref(env)
        number = torch_compiles.get_attempt()
        attempt = self._attempts.get(compile_id)
        if attempt is None or attempt.number != number:
            # A restart traces anew: what the attempt before laid down does not hold.
            attempt = self._attempts[compile_id] = SizeAttempt(number)
            if len(self._attempts) > MAX_OPEN_ATTEMPTS:
                self.report_attempt(next(iter(self._attempts)))
        return attempt


def _list_lines(guard: torch_compiles.SizeCondition) -> list[Location]:
    """List the lines of the traced code. `torch.export` runs it instead: there they are what is no
    part of torch among the calls in progress, but for those below a compiled function."""
    if guard.traced or torch_compiles.get_compile_id():
        lines = [Location(frame.filename, frame.lineno or 0, frame.name) for frame in guard.traced]
    else:
        lines = [
            Location(code.co_filename, line, code.co_name)
            for code, line in reversed(guard.frames)
            if not source_locations.is_library(code.co_filename)
        ]
    return lines[-_STACK:]


def _iterate_torch_calls(frames: Iterable[tuple[types.CodeType, int]]) -> Iterable[str]:
    for code, _ in frames:
        name, file = code.co_name, code.co_filename
        if (name, os.path.basename(file)) == _TRACED_FROM or not source_locations.is_torch(file):
            return
        yield name
        if name == OPERATION:
            return


MIN_BLOCKS = 4
"""Fewer blocks save too little to be worth another way of compiling."""
MIN_COMPILE_S = 1.0
"""Modules are looked at for compiles that took longer: counting takes a thousandth of that."""
MAX_MODULES, MAX_VALUES = 20_000, 200
_RECORDING = "CUDAGRAPH_RECORDING"
_REASON_CHARS = 2048


class _MetricsRow(NamedTuple):
    """One row of torch's metrics; its set of fields grows with every release (79 to 99)."""

    metrics: Any

    def get(self, name: str) -> Any:
        return getattr(self.metrics, name, None)

    def get_seconds(self, name: str) -> float | None:
        value = self.get(name)
        return None if value is None else value / 1e6

    def get_text(self, name: str) -> str | None:
        value = self.get(name)
        return None if value is None else clip(str(value))


class CompileCollector:
    """Turns metrics rows, start callbacks and resets into events."""

    def __init__(self, session: Session, sizes: SizeGuardCollector) -> None:
        self._session = session
        self._sizes = sizes
        self.phases = PhaseTimes()
        self._called_from: dict[str, tuple[UserCall | None, str]] = {}
        """The program's line that compiles in progress were called from, by compile id."""
        self.rows = 0
        self.phases_seen = False
        """Whether torch's timing reaches `phases`."""
        self._specialized: dict[str, list[str]] = {}
        """Floats that became constants in compiles in progress, by compile id."""
        self._own_s: dict[str, float] = {}
        """Our own seconds inside a compile in progress, by compile id; taken out of its cost."""

    def record_start(self, trigger: str, compile_id: str) -> None:
        """A compile began (live view only: nothing is counted from it)."""
        # Invariant: torch holds its callbacks' lock meanwhile (`_call_before_callbacks`).
        session = self._session
        session.compiled_in_step = True
        compiled = torch_compiles.find_compiling_frame()
        caller = find_user_call_or_thread(session)
        if trigger != _RECORDING:  # which has no row
            self._called_from[compile_id] = caller
        where = source_locations.get_location(compiled.code) if compiled is not None else None
        session.emit_in_step(CompileStarted, trigger, compile_id, session.epoch, where, *caller)

    def record_row(self, metrics: Any) -> None:
        """torch recorded a compile; never raises."""
        session = self._session
        self.rows += 1
        session.compiled_in_step = True
        with session.catch_faults("metrics row"):
            # torch writes a row when a compile has ended: its size conditions are complete.
            self._sizes.report_attempt(str(getattr(metrics, "compile_id", None) or ""))
            session.emit(self._build_event(metrics))

    def record_specialized(self, compile_id: str, source: str) -> None:
        """torch traces a frame again with a float as a constant; never raises."""
        with self._session.catch_faults("float made constant"):
            self._specialized.setdefault(compile_id, []).append(clip(source, 512))

    def record_reset(self) -> None:
        """`torch._dynamo.reset()`: ids start again."""
        # Invariant: a compile id is unique within an epoch only.
        session = self._session
        session.epoch += 1
        for by_id in (self._called_from, self._own_s, self._specialized):
            by_id.clear()
        session.emit_in_step(DynamoReset, session.epoch)

    def leave_out(self, compile_id: str, seconds: float) -> None:
        """Time of our own inside a compile in progress: it is no part of its cost."""
        self._own_s[compile_id] = self._own_s.get(compile_id, 0.0) + seconds
        self.phases.leave_out(seconds)

    def _build_event(self, metrics: Any) -> Compiled:
        row = _MetricsRow(metrics)
        session = self._session
        compile_id = str(row.get("compile_id") or "")
        entry, thread = self._called_from.pop(compile_id, None) or find_user_call_or_thread(session)
        start, end = row.get("start_time_us"), row.get("end_time_us")
        if start is not None and end is not None and end >= start:
            seconds = (end - start) / 1e6
        else:  # a lazily compiled backward has only its duration
            seconds = row.get_seconds("duration_us") or 0.0
        # Our own analysis of a recompile lies within torch's times.
        seconds -= self._own_s.pop(compile_id, 0.0)
        compiled = torch_compiles.find_compiling_frame() if seconds >= MIN_COMPILE_S else None
        reason = row.get("recompile_reason")
        restarts = row.get("restart_reasons") or ()
        # Children of a test have its variable too, and are no tests.
        tested = "_pytest" in sys.modules and "PYTEST_CURRENT_TEST" in os.environ
        return Compiled(
            t=session.now(),
            step=session.step,
            compile_id=compile_id,
            epoch=session.epoch,
            frame=Location(
                str(row.get("co_filename") or ""),
                int(row.get("co_firstlineno") or 0),
                str(row.get("co_name") or ""),
            ),
            forward=row.get("is_forward") is not False,
            guarded=bool(row.get("has_guarded_code")),
            seconds=max(0.0, seconds),
            # AOTAutograd's time holds the backend's; torch calls this one backend_compile_time.
            backend_s=row.get_seconds("aot_autograd_cumulative_compile_time_us"),
            graph_ops=row.get("graph_op_count"),
            guards=row.get("guard_count"),
            cache_size=row.get("cache_size"),
            # With the comment that ends it.
            recompile_reason=None if reason is None else clip_middle(str(reason), _REASON_CHARS),
            fail_type=row.get_text("fail_type"),
            fail_reason=row.get_text("fail_reason"),
            restart_reasons=tuple(sorted(clip(str(restart)) for restart in restarts)),
            restarted_for=tuple(self._specialized.pop(compile_id, ())),
            limit=torch_compiles.get_recompile_limit(),
            guard_eval_us=row.get("guard_latency_us"),
            cache_hits=count_cache_outcomes(row.get, "hit"),
            cache_misses=count_cache_outcomes(row.get, "miss"),
            phases=self.phases.take() if self.phases_seen else None,
            restarted_s=row.get_seconds("dynamo_compile_time_before_restart_us"),
            blocks=None if compiled is None else find_repeated_blocks(compiled.values or {}),
            exported=torch_compiles.is_exporting(),
            entered_at=entry,
            entered_from=thread,
            # "tests/test_a.py::test_b[1] (call)", which pytest sets in every phase of a test.
            test=clip(os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]) if tested else "",
            interrupted=_is_interrupted(),
        )


def _is_interrupted() -> bool:
    """True while an exception that is no `Exception` leaves torch's compile. One that the program
    handles, and compiles meanwhile, was caught in the program's own code."""
    error = sys.exc_info()[1]
    at = None if error is None or isinstance(error, Exception) else error.__traceback__
    return at is not None and source_locations.is_torch(at.tb_frame.f_code.co_filename)


def find_repeated_blocks(values: Mapping[str, Any]) -> RepeatedBlocks | None:
    """Find the largest group of siblings of one class, with the same parts and the same shapes of
    parameters and buffers, below a module among the local variables `values` of what was compiled.
    Plain layers, which have no parts, are no blocks. None where no group has `MIN_BLOCKS`, and most
    of the module's parts: what else it holds may be what takes the time."""
    module_type = getattr(get_imported("torch.nn"), "Module", None)
    if module_type is None:
        return None
    groups: list[RepeatedBlocks] = []
    for name, root in list(values.items())[:MAX_VALUES]:
        modules = list(root.named_modules()) if isinstance(root, module_type) else []
        for path, module in modules if len(modules) <= MAX_MODULES else ():
            children = [child for child in module.children() if any(True for _ in child.children())]
            if len(children) < MIN_BLOCKS:
                continue
            kinds = [_compute_kind(child) for child in children]
            kind, count = Counter(kinds).most_common(1)[0]
            if count >= MIN_BLOCKS:
                block = children[kinds.index(kind)]
                parts = count * sum(1 for _ in block.modules())
                where = f"{name}.{path}" if path else name
                if 2 * parts > len(modules):
                    groups.append(RepeatedBlocks(where, type(block).__name__, count, parts))
    return max(groups, key=lambda group: group.modules, default=None)


def _compute_kind(module: Any) -> Hashable:
    named: list[tuple[str, object]] = list(module.named_modules())
    parts = tuple((name, type(part)) for name, part in named)
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return parts, tuple((name, tuple(tensor.shape), tensor.dtype) for name, tensor in tensors)
