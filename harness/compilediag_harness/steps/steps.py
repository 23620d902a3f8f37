"""Steps and phases from hooks on optimizers, data loaders, compiled calls, the autograd engine.

For a program that marks no steps; `step()` and `drive()` are for programs that do.

The hooks are the same for every session and stay in torch once they are there, without effect when
no session is left. They must not raise; Dynamo traces none of them, and is guarded on none.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from compilediag_harness.base import process_options
from compilediag_harness.base.session import Session, fork_handlers
from compilediag_harness.steps import disabled_calls
from compilediag_harness.steps.step_clock import StepClock, StepSampling
from compilediag_harness.steps.step_detection import (
    CALL,
    EVERY_MARK,
    CompiledCallables,
    OptimizerRegistry,
    StepSource,
)
from compilediag_harness.torch_internals import (
    dynamo_skip,
    torch_api,
    torch_calls,
    torch_compiles,
    torch_open_calls,
)
from compilediag_harness.user_api import cadence, spans
from compilediag_harness.user_api.spans import BACKWARD, DATA_WAIT, SpanRow

step_limit: int | None = None
"""Steps of the first session after which the program stops."""

_active: tuple[StepSource, ...] = ()
"""One per session, in order of installation."""

_marks = 0
"""Calls of `step()` by the program."""

_unsampled: StepSampling | None = None
"""Set while steps are not sampled: there is one session then."""

_callables: CompiledCallables | None = None
_updated_after = 0
"""Runs of the autograd engine before the newest step of an optimizer that torch does not record."""
_monotonic = time.monotonic
_hooked = False
_forget: list[Callable[[], None]] = []
"""What ends the listening to calls, and to functions that are disabled."""


def step() -> None:
    """Ends the step in progress. Only for loops that neither an optimizer step nor a compiled call
    marks; the first call makes `step()` the only mark. Inside of compiled code it does nothing.

    Raises:
        SystemExit: after the last step that `compilediag run --steps N` allows.
    """
    global _marks
    # Checked first: compiled code is then not guarded on whether a session is there.
    if dynamo_skip.is_compiling() or not _active:
        return
    _marks += 1
    attribute_ended_spans()
    at = _monotonic()
    if _unsampled is None or not _unsampled.record_end(EVERY_MARK, at):
        sample_again()
        for source in _active:
            source.mark_step(at)
            _handle_step_end(source, at)
    _stop_if_done()


def drive(train: Callable[[int], object], steps: int = 60) -> int:
    """Calls `train(0)`, `train(1)`, ... and returns how often.

    Each call is one step, unless `train` calls `step()` itself. `compilediag run --steps N` sets
    the number of steps, in place of `steps`; what follows the loop then still runs.

    Raises:
        ValueError: `steps` is negative.
    """
    global step_limit
    if steps < 0:
        raise ValueError(f"drive: steps must be 0 or more, not {steps}")
    step_limit = None  # the loop keeps to the number by itself
    steps = process_options.read().steps or steps
    for index in range(steps):
        before = _marks
        train(index)
        if _marks == before:
            step()
    return steps


def install(session: Session, torch_module: Any) -> None:
    """Start counting steps and spans for `session`; call it when torch is imported."""
    global _active, _callables, step_limit, _hooked
    dynamo_skip.bind(torch_module)
    if not _active:
        step_limit = session.options.steps
    sample_again()
    source = StepSource(session, OptimizerRegistry(torch_module), _monotonic(), _pause, _resume)
    source.clock.phases.before_flattening = attribute_ended_spans
    # Replaced, never changed: hooks iterate over it in any thread, without a lock.
    _active = (*_active, source)
    _callables = _callables or CompiledCallables(torch_module)
    disabled_calls.install(session, functools.partial(find_phase_at, source))
    spans.install(session, attribute_spans)
    cadence.sinks.install(session)
    if not _forget:
        _forget.append(torch_calls.watch_outermost_calls(begin_call, end_call))
        # Each call of a function that is disabled while steps are unsampled is to be timed, too.
        _forget.append(torch_calls.watch_disabled_functions(sample_again))
    if not _hooked:
        _hooked = True
        fork_handlers.append(_handle_fork)
        backward_ends = functools.partial(end_phase, BACKWARD)
        # Once in a process, as they stay: twice would count each run twice.
        torch_api.wrap_backward(torch_module, begin_backward, backward_ends)
        torch_api.wrap_recorded(
            torch_module,
            (begin_optimizer, end_optimizer),
            (functools.partial(begin_phase, DATA_WAIT), functools.partial(end_phase, DATA_WAIT)),
        )


def finish(session: Session) -> None:
    """Write the steps and spans that are not written yet."""
    spans.finish(session)
    cadence.sinks.finish(session)
    sample_again()
    at = _monotonic()
    for source in _active:
        if source.clock.session is session:
            source.sampling.fold()  # another thread may have recorded an end a moment too late
            source.finish(at)
    disabled_calls.sinks.finish(session)


def uninstall(session: Session) -> None:
    """Stop counting for `session`; call `finish` before."""
    global _active, _callables
    sample_again()
    spans.uninstall(session)
    cadence.sinks.uninstall(session)
    _active = tuple(source for source in _active if source.clock.session is not session)
    disabled_calls.uninstall(session)
    session.step_listeners.clear()
    if not _active:
        _callables = None  # its keys are addresses, which other objects get meanwhile
        while _forget:
            _forget.pop(0)()


def _handle_fork() -> None:
    spans.handle_fork()
    torch_api.forget_engine_runs()
    for source in _active:
        source.handle_fork()


def find_clock(session: Session) -> StepClock | None:
    """Find the clock of a session's steps; None when none is installed."""
    return next((source.clock for source in _active if source.clock.session is session), None)


def attribute_ended_spans() -> None:
    """Attribute ended spans before a step may end: they belong to the one they ended in."""
    if spans.ended_rows:
        spans.assign_ended_spans()


def _handle_step_end(source: StepSource, at: float, *, by_calls: bool = False) -> None:
    """Handle the end of a sampled step, or of a call in it: the next ones may go unsampled."""
    if len(_active) == 1:
        source.sampling.pause_if_brief(source.sole_mark, source.source or "", at, by_calls=by_calls)


def _pause(source: StepSource, by_calls: bool) -> bool:
    """Pause the reporting of calls, unless they mark the steps. False where that cannot be."""
    global _unsampled
    # The calls of the program's own disabled functions are counted, each of them.
    begin = _begin_unsampled_call if by_calls else None
    if disabled_calls.is_watching() or not torch_calls.pause_calls(begin):
        return False
    _unsampled = source.sampling
    return True


def _resume() -> None:
    global _unsampled
    _unsampled = None
    torch_calls.resume_calls()


def sample_again() -> None:
    """Sample again: something is to be reported that is not while steps are unsampled."""
    if _unsampled is not None:
        attribute_ended_spans()
        _unsampled.stop()


def begin_optimizer(optimizer: Any) -> tuple[int, float]:
    """Begin an optimizer's step. Returns the optimizer's key and the time."""
    at, key = _monotonic(), id(optimizer)
    if _unsampled is None or _unsampled.key not in (key, EVERY_MARK):
        sample_again()
        for source in _active:
            source.begin_optimizer(at)
    return key, at


def end_optimizer(begun: tuple[int, float], raised: bool) -> None:
    """End the step that `begin_optimizer` returned; one that `raised` was none."""
    key, began = begun
    attribute_ended_spans()
    at = _monotonic()
    if _unsampled is None or not (
        raised or _unsampled.key == EVERY_MARK or _unsampled.record_end(key, at)
    ):
        for source in _active:
            try:
                source.end_optimizer(0 if raised else key, began, at)
                _handle_step_end(source, at)
            except Exception as error:
                source.clock.session.record_fault("optimizer step", error)
    if not raised:
        _stop_if_done()


def begin_call(key: int = 0) -> None:
    """Begin an outermost call of a compiled callable; `key` distinguishes callables."""
    if spans.ended_rows and any(source.ended_by_calls for source in _active):
        spans.assign_ended_spans()
    mark = _find_mark(key)
    at = _monotonic()
    for source in _active:
        try:
            if mark:
                source.begin_call(mark, at)
            if _callables is not None and source.clock.is_own_thread:
                source.clock.enter(_callables.find_phase(key), at)
        except Exception as error:
            source.clock.session.record_fault("compiled call", error)
    _stop_if_done()


def end_call(key: int = 0) -> None:
    """End that call."""
    attribute_ended_spans()
    at = _monotonic()
    for source in _active:
        try:
            here = _callables is not None and source.clock.is_own_thread
            if _callables is not None and here:
                source.clock.phases.close(_callables.find_phase(key), at)
            source.end_call(at)
            if here and source.source is CALL:
                _handle_step_end(source, at, by_calls=True)
        except Exception as error:
            source.clock.session.record_fault("end of a compiled call", error)


def _find_mark(key: int) -> int:
    """Find what a compiled call that begins marks in place of the callable: the optimizer in whose
    step it is made, once for each time that gradients were computed. Nothing, 0, if that optimizer
    is one that torch records, if the autograd engine makes the call to compute activations again,
    and inside of another."""
    global _updated_after
    if torch_api.is_in_optimizer_step() or torch_api.is_in_backward():
        return 0
    if torch_open_calls.is_inside_another():
        return 0
    if not any(source.ended_by_calls for source in _active):
        return key  # an update, or nothing
    optimizer = torch_open_calls.find_stepping_optimizer()
    if optimizer is None:
        return key
    before, _updated_after = _updated_after, torch_api.count_engine_runs()
    return 0 if _updated_after == before else id(optimizer)


def _begin_unsampled_call(key: int) -> None:
    """Begin a call while steps are unsampled: it may end such a step."""
    if _unsampled is None or key != _unsampled.key or torch_api.is_in_backward():
        key = _find_mark(key)
        if not key:
            return
    attribute_ended_spans()
    at = _monotonic()
    if _unsampled is not None and _unsampled.record_end(key, at):
        _stop_if_done()
        return
    sample_again()
    for source in _active:
        try:
            source.begin_call(key, at)
        except Exception as error:
            source.clock.session.record_fault("compiled call", error)


def begin_backward() -> list[StepClock]:
    """Begin a run of the autograd engine. Returns the clocks that were called."""
    if _unsampled is not None:
        return []
    for source in _active:
        # A compile runs the engine too, to trace it; only inside a forward or a backward.
        if source.clock.phases.has_open and torch_compiles.is_compile_in_progress():
            return []
    return begin_phase(BACKWARD)


def begin_phase(phase: int) -> list[StepClock]:
    """Begin a phase in this thread. Returns the clocks that were called."""
    if _unsampled is not None:
        attribute_ended_spans()
        _unsampled.fold()
    at = _monotonic()
    thread = threading.get_ident()
    clocks = [source.clock for source in _active if source.clock.thread == thread]
    for clock in clocks:
        clock.enter(phase, at)
    return clocks


def end_phase(phase: int, clocks: list[StepClock]) -> None:
    """End a phase, with the clocks that `begin_phase` returned."""
    at = _monotonic()
    for clock in clocks:
        clock.phases.close(phase, at)


def _stop_if_done() -> None:
    """End the program from the main thread, by SystemExit, when the first session has done its
    steps: `finally` blocks and `atexit` run, and an `except Exception` does not swallow it."""
    if (
        step_limit is not None
        and _active
        and _active[0].clock.session.step >= step_limit
        and threading.current_thread() is threading.main_thread()
    ):
        raise SystemExit(0)


def attribute_spans(rows: Sequence[SpanRow], ending: bool) -> Sequence[str | None]:
    """Attribute spans that have ended to the step in progress of every session, as
    `spans.Attribution`. Returns the phases they began in, None for those of a thread whose steps
    this one may not touch unless a session is `ending`."""
    here = threading.get_ident()
    own_steps = len(_active) == 1 and _active[0].clock.thread == here
    if own_steps and all(row[4] == here for row in rows):
        return _add_spans(_active[0], rows)  # the usual case, in the user's step
    closed = set[int]() if ending else {source.clock.thread for source in _active} - {here}
    names: list[str | None] = [None if row[4] in closed else "" for row in rows]
    for source in _active:
        thread = source.clock.thread
        indices = [index for index, row in enumerate(rows) if row[4] == thread]
        if indices and thread not in closed:
            added = _add_spans(source, [rows[index] for index in indices])
            for index, name in zip(indices, added, strict=True):
                names[index] = name
    return names


def _add_spans(source: StepSource, rows: Sequence[SpanRow]) -> Sequence[str]:
    """Add spans of the thread that ends the steps. Returns the phases they began in."""
    if _unsampled is not None:
        _unsampled.fold()
    measured = source.clock.phases
    spans = [(row[2].phase, row[0] / 1e9, row[1] / 1e9) for row in rows]
    if measured.has_open or source.optimizing_since is not None or measured.has_ended:
        names: Sequence[str] = [
            measured.find_holding(began, ended) or find_phase_at(source, began)
            for _, began, ended in spans
        ]
    else:  # no phase but spans since the step began: all began in the same
        names = (find_phase_at(source, 0.0),) * len(spans)
    measured.add_spans(spans)
    return names


def find_phase_at(source: StepSource, began: float) -> str:
    """Find the name of the phase that something which began at `began` is in."""
    clock, optimizing_since = source.clock, source.optimizing_since
    name = clock.phases.get_name_at(began)
    if name == spans.REST and not clock.sampling:
        name = spans.UNMEASURED
    in_optimizer = optimizing_since is not None and optimizing_since <= began
    no_other = name in (spans.REST, spans.UNMEASURED)
    return spans.NAMES[spans.OPTIMIZER] if no_other and in_optimizer else name
