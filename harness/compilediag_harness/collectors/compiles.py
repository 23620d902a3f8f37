"""Compile start and end, frames, metrics: one event for every metrics row of torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from compilediag_harness.base.session import Session
from compilediag_harness.blame.source_locations import location_of
from compilediag_harness.blame.user_calls import entered
from compilediag_harness.collectors.memory import Resident, resident
from compilediag_harness.collectors.recompiles import RecompileCollector
from compilediag_harness.collectors.size_guards import SizeGuardCollector
from compilediag_harness.torch_internals import torch_compiles
from compilediag_harness.torch_internals.torch_compiles import PhaseTimes
from compilediag_harness.torch_internals.torch_names import loaded
from compilediag_harness.wire import (
    Compiled,
    CompileMemoryRead,
    CompileStarted,
    DynamoReset,
    Location,
    RepeatedBlocks,
    UserCall,
    clip,
    clip_middle,
)

FEWEST = 4
"""Fewer blocks save too little to be worth another way of compiling."""

WORTH_S = 1.0
"""Modules are looked at for compiles that took longer: counting takes a thousandth of that."""

MAX_MODULES = 20_000

MAX_VALUES = 200


_MAX_OPEN = 256


class CompileMemory:
    """The compiles in progress of one session, by compile id."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._before: dict[str, Resident] = {}

    def began(self, compile_id: str) -> None:
        """torch began a compile. Those it does not announce, because another is in progress, have
        no record."""
        found = resident()
        if found is not None and len(self._before) < _MAX_OPEN:
            self._before[compile_id] = found

    def ended(self, compile_id: str, *, forward: bool) -> None:
        """Its metrics row was written."""
        before = self._before.pop(compile_id, None)
        after = resident() if before is not None else None
        if before is None or after is None:
            return
        session = self._session
        session.emit(
            CompileMemoryRead(
                t=session.now(),
                step=session.step,
                compile_id=compile_id,
                epoch=session.epoch,
                forward=forward,
                before=before.now,
                after=after.now,
                peak_before=before.peak,
                peak_after=after.peak,
            )
        )

    def forget(self) -> None:
        """Ids start again."""
        self._before.clear()


_RECORDING = "CUDAGRAPH_RECORDING"
_REASON_CHARS = 2048
_CACHES = ("inductor_fx_local", "inductor_fx_remote", "aotautograd_local", "aotautograd_remote")


class CompileCollector:
    """Turns metrics rows, start callbacks and resets into events."""

    def __init__(
        self,
        session: Session,
        recompiles: RecompileCollector,
        sizes: SizeGuardCollector,
        phases: PhaseTimes,
    ) -> None:
        self._session = session
        self._recompiles = recompiles
        self._sizes = sizes
        self._phases = phases
        self._entered: dict[str, tuple[UserCall | None, str]] = {}
        """Of compiles that began, by compile id."""
        self._memory = CompileMemory(session)
        self.rows = 0

    def started(self, trigger: str, compile_id: str) -> None:
        """A compile began (live view only: nothing is counted from it)."""
        session = self._session
        session.compiled_in_step = True
        compiled = torch_compiles.frame_being_compiled()
        found = entered(session)
        if trigger != _RECORDING:  # which has no row
            self._entered[compile_id] = found
            self._memory.began(compile_id)
        session.emit(
            CompileStarted(
                session.now(),
                session.step,
                trigger,
                compile_id,
                session.epoch,
                location_of(compiled.code) if compiled is not None else None,
                *found,
            )
        )

    def row(self, metrics: Any) -> None:
        """torch recorded a compile; never raises."""
        self.rows += 1
        self._session.compiled_in_step = True
        try:
            self._sizes.ended(str(_field(metrics, "compile_id") or ""))
            made = self._compiled(metrics)
            self._session.emit(made)
            self._memory.ended(made.compile_id, forward=made.forward)
        except Exception as error:
            self._session.fault("metrics row", error)

    def reset(self) -> None:
        """`torch._dynamo.reset()`: ids start again."""
        # Invariant: a compile id is unique within an epoch only.
        session = self._session
        session.epoch += 1
        self._entered.clear()
        self._memory.forget()
        self._recompiles.analysis_s.clear()
        session.emit(DynamoReset(session.now(), session.step, session.epoch))

    def leave_out(self, compile_id: str, seconds: float) -> None:
        """Time of our own inside a compile in progress: it is no part of its cost."""
        spent = self._recompiles.analysis_s
        spent[compile_id] = spent.get(compile_id, 0.0) + seconds
        self._phases.leave_out(seconds)

    def _compiled(self, metrics: Any) -> Compiled:
        session = self._session
        compile_id = str(_field(metrics, "compile_id") or "")
        # Our own analysis of a recompile lies within torch's times.
        entered_at, entered_from = self._entered.pop(compile_id, None) or entered(session)
        seconds = _seconds(metrics) - self._recompiles.analysis_s.pop(compile_id, 0.0)
        timed = self._phases.take()
        return Compiled(
            t=session.now(),
            step=session.step,
            compile_id=compile_id,
            epoch=session.epoch,
            frame=Location(
                str(_field(metrics, "co_filename") or ""),
                int(_field(metrics, "co_firstlineno") or 0),
                str(_field(metrics, "co_name") or ""),
            ),
            forward=_field(metrics, "is_forward") is not False,
            guarded=bool(_field(metrics, "has_guarded_code")),
            seconds=max(0.0, seconds),
            # AOTAutograd's time holds the backend's; torch calls this one backend_compile_time.
            backend_s=_microseconds(metrics, "aot_autograd_cumulative_compile_time_us"),
            graph_ops=_field(metrics, "graph_op_count"),
            guards=_field(metrics, "guard_count"),
            cache_size=_field(metrics, "cache_size"),
            recompile_reason=_reason(metrics),
            fail_type=_text(metrics, "fail_type"),
            fail_reason=_text(metrics, "fail_reason"),
            restart_reasons=tuple(
                sorted(clip(str(item)) for item in _field(metrics, "restart_reasons") or ())
            ),
            limit=torch_compiles.recompile_limit(),
            guard_eval_us=_field(metrics, "guard_latency_us"),
            cache_hits=_cache_count(metrics, "hit"),
            cache_misses=_cache_count(metrics, "miss"),
            phases=None if timed is None else timed.own,
            phase_spans=() if timed is None else timed.spans,
            restarted_s=_microseconds(metrics, "dynamo_compile_time_before_restart_us"),
            blocks=_blocks(seconds),
            exported=torch_compiles.exporting(),
            entered_at=entered_at,
            entered_from=entered_from,
        )


def _blocks(seconds: float) -> RepeatedBlocks | None:
    if seconds < WORTH_S:
        return None
    compiled = torch_compiles.frame_being_compiled()
    values = compiled.values if compiled is not None else None
    return repeated_blocks(values) if values else None


def _field(metrics: Any, name: str) -> Any:
    """A field of a metrics row; the set of fields grows with every release (79 to 99)."""
    return getattr(metrics, name, None)


def _text(metrics: Any, name: str) -> str | None:
    value = _field(metrics, name)
    return None if value is None else clip(str(value))


def _reason(metrics: Any) -> str | None:
    """The printed reason, with the comment that ends it."""
    value = _field(metrics, "recompile_reason")
    return None if value is None else clip_middle(str(value), _REASON_CHARS)


def _cache_count(metrics: Any, outcome: str) -> int | None:
    """Hits or misses of all caches; None where this torch does not count them."""
    counts = [_field(metrics, f"{cache}_cache_{outcome}_count") for cache in _CACHES]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _microseconds(metrics: Any, name: str) -> float | None:
    value = _field(metrics, name)
    return None if value is None else value / 1e6


def _seconds(metrics: Any) -> float:
    """Wall seconds of the compile. A lazily compiled backward has only its duration."""
    start, end = _field(metrics, "start_time_us"), _field(metrics, "end_time_us")
    if start is not None and end is not None and end >= start:
        return (end - start) / 1e6
    return _microseconds(metrics, "duration_us") or 0.0


def repeated_blocks(values: Mapping[str, Any]) -> RepeatedBlocks | None:
    """The largest group of siblings of one class, with the same parts and the same shapes of
    parameters and buffers, below a module among the local variables of what was compiled. Plain
    layers, which have no parts, are no blocks. None where no group has `FEWEST`.

    Args:
        values: local variables of the frame, by name.
    """
    module_type = getattr(loaded("torch.nn"), "Module", None)
    if module_type is None:
        return None
    found: list[RepeatedBlocks] = []
    for name, value in list(values.items())[:MAX_VALUES]:
        if isinstance(value, module_type):
            found += _groups(name, value)
    return max(found, key=lambda each: each.modules, default=None)


def _groups(name: str, root: Any) -> Iterable[RepeatedBlocks]:
    modules = list(root.named_modules())
    if len(modules) > MAX_MODULES:
        return
    for path, module in modules:
        children = [child for child in module.children() if any(True for _ in child.children())]
        if len(children) < FEWEST:
            continue
        kinds = Counter(map(_kind, children))
        kind, count = kinds.most_common(1)[0]
        if count >= FEWEST:
            one = next(child for child in children if _kind(child) == kind)
            parts = count * sum(1 for _ in one.modules())
            where = f"{name}.{path}" if path else name
            yield RepeatedBlocks(where, type(one).__name__, count, parts)


def _kind(module: Any) -> Hashable:
    named: list[tuple[str, object]] = list(module.named_modules())
    parts = tuple((name, type(part)) for name, part in named)
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return parts, tuple((name, tuple(each.shape), each.dtype) for name, each in tensors)
