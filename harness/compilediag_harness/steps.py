"""Finds the steps of a program that says nothing, and their phases: hooks on optimizers, data
loaders, compiled calls and the autograd engine, and `step()` for programs that do.

The hooks are the same for every session and stay in torch once they are there, without effect when
no session is left: a compiled optimizer step is guarded on torch's table of hooks, so taking ours
out again would make the user's program recompile.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from compilediag_harness import (
    cadence,
    cadence_log,
    device_clock,
    disabled_calls,
    spans,
    torch_api,
    torch_calls,
    torch_compiles,
    torch_guards,
    torch_names,
    undisturbed,
)
from compilediag_harness.brief_steps import BriefSteps
from compilediag_harness.compiled_callables import CompiledCallables
from compilediag_harness.live_optimizers import LiveOptimizers
from compilediag_harness.phases import BACKWARD, DATA_WAIT
from compilediag_harness.session import Session
from compilediag_harness.span_batches import Row
from compilediag_harness.step_clock import StepClock
from compilediag_harness.step_source import CALL, EVERY_MARK, StepSource
from compilediag_harness.tracebacks import leave_out_this_frame

STEPS_VARIABLE = "COMPILEDIAG_STEPS"
"""Environment variable: stop the program, with exit code 0, after this many steps."""

_active: tuple[StepSource, ...] = ()
"""One per session, in order of installation."""

_limit: int | None = None
"""Steps of the first session after which the program stops."""

_marks = 0
"""Calls of `step()` by the program."""

_hooked = False
_noting: BriefSteps | None = None
"""While steps are only noted: there is one session then."""

_forget_calls: Callable[[], None] | None = None
_forget_disabling: Callable[[], None] | None = None
_callables: CompiledCallables | None = None
_monotonic = time.monotonic


def step() -> None:
    """Ends the step in progress. Only for loops that neither an optimizer step nor a compiled call
    marks; the first call makes `step()` the only mark. Inside of compiled code it does nothing.

    Raises:
        SystemExit: after the last step that `compilediag run --steps N` allows.
    """
    if not _active or undisturbed.is_compiling():
        return
    _end_explicitly()


def _end_explicitly() -> None:
    global _marks
    _marks += 1
    _place_ended_spans()
    at = _monotonic()
    if _noting is None or not _noting.took(EVERY_MARK, at):
        _watch_again()
        for source in _active:
            source.explicit(at)
            _ended(source, at)
    _stop_if_done()


def marks() -> int:
    """How often the program has called `step()` while a session was there."""
    return _marks


def _place_spans(rows: Sequence[Row], ending: bool) -> Sequence[str | None]:
    """Counts spans to the step in progress; the phases they began in, None for those of a thread
    whose steps this one may not touch unless the session is `ending`."""
    here = threading.get_ident()
    if len(_active) == 1 and _active[0].clock.thread == here:
        for row in rows:
            if row[4] != here:
                break
        else:  # the usual case
            return _count_spans(_active[0], rows)
    closed = set[int]() if ending else {source.clock.thread for source in _active} - {here}
    names: list[str | None] = [None if row[4] in closed else "" for row in rows]
    for source in _active:
        thread = source.clock.thread
        places = [place for place, row in enumerate(rows) if row[4] == thread]
        if places and thread not in closed:
            told = _count_spans(source, [rows[place] for place in places])
            for place, name in zip(places, told, strict=True):
                names[place] = name
    return names


def _count_spans(source: StepSource, rows: Sequence[Row]) -> Sequence[str]:
    """Counts spans of the thread that ends the steps; the phases they began in."""
    if _noting is not None:
        _noting.fold()
    return source.place([(row[2].phase, row[0] * 1e-9, row[1] * 1e-9) for row in rows])


def _place_ended_spans() -> None:
    """Before a step may end: spans belong to the one they ended in."""
    if spans.ended_rows:
        spans.catch_up()


def clock_of(session: Session) -> StepClock | None:
    """The clock of a session's steps; None when none is installed."""
    return next((one.clock for one in _active if one.clock.session is session), None)


def own_the_loop() -> None:
    """Called by a loop that keeps to the number of steps by itself: nothing stops it from here."""
    global _limit
    _limit = None


# --- installing --------------------------------------------------------------------------------


def install(session: Session, torch_module: Any) -> None:
    """Starts counting steps and spans for `session`; call it when torch is imported."""
    global _active, _limit
    undisturbed.bind(torch_module)
    if not _active:
        _limit = _read_limit(session)
    _watch_again()
    source = StepSource(session, LiveOptimizers(torch_module), _monotonic(), _pause, _resume)
    _active = (*_active, source)
    source.clock.phases.before_taking_apart = _place_ended_spans
    source.clock.device = device_clock.watch(session, torch_module)
    disabled_calls.install(session, source.phase_at)
    spans.install(session, torch_module, _place_spans)
    cadence.install(session, torch_module)
    _put_hooks(session, torch_module)


def finish(session: Session) -> None:
    """Writes the steps and spans that are not written yet."""
    spans.finish(session)
    cadence_log.finish(session)
    _watch_again()
    at = _monotonic()
    for source in _active:
        if source.clock.session is session:
            source.brief.fold()  # another thread may have noted an end a moment too late
            source.finish(at)
            if source.clock.device is not None:
                source.clock.device.finish()
    disabled_calls.finish(session)


def uninstall(session: Session) -> None:
    """Stops counting for `session`; call `finish` before."""
    global _active, _forget_calls, _forget_disabling, _callables
    _watch_again()
    spans.uninstall(session)
    cadence_log.uninstall(session)
    _active = tuple(source for source in _active if source.clock.session is not session)
    disabled_calls.uninstall(session)
    device_clock.forget(session)
    if not _active:
        _callables = None  # its keys are addresses, which other objects get meanwhile
        if _forget_calls is not None:
            _forget_calls()
        if _forget_disabling is not None:
            _forget_disabling()
        _forget_calls = _forget_disabling = None


def _put_hooks(session: Session, torch_module: Any) -> None:
    global _hooked, _callables, _forget_calls, _forget_disabling
    _callables = _callables or CompiledCallables(torch_module)
    if _forget_calls is None:
        _forget_calls = torch_calls.on_outermost_call(_call_begins, _call_ends)
        # Of a function that is disabled while steps are noted each call is to be told, too.
        _forget_disabling = torch_calls.on_function_disabled(_watch_again)
    if _hooked:
        return
    undisturbed.never_compiled(
        torch_module,
        *(step, _optimizer_begins, _optimizer_ends, _backward_begins, _backward_ends),
        *(_entered, _left),
    )
    if _step_is_compiled_already(torch_module):
        return  # it was compiled without our hooks: putting them in would make it recompile
    _hooked = True
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forked)
    try:
        _watch_loaders(torch_module)
    except Exception as error:
        session.fault("data loader hook", error)
    backward = torch_api.around_backward(torch_module, _backward_begins, _backward_ends)
    undisturbed.never_compiled(torch_module, backward, callees=True)
    optimizers: Any = torch_names.loaded("torch.optim.optimizer")  # no attribute of torch.optim
    optimizers.register_optimizer_step_pre_hook(_optimizer_begins)
    optimizers.register_optimizer_step_post_hook(_optimizer_ends)


# --- brief steps: the ends of most are only noted -----------------------------------------------


def _ended(source: StepSource, at: float, *, by_calls: bool = False) -> None:
    """A watched step has ended, or a call in it: the next ones may be noted."""
    if len(_active) == 1:
        source.brief.ended(source.steady, source.source or "", at, by_calls=by_calls)


def _pause(source: StepSource, by_calls: bool) -> bool:
    """Nobody is told of calls any more, unless they mark the steps."""
    global _noting
    # The calls of the program's own disabled functions are counted, each of them.
    if disabled_calls.watching() or not torch_calls.pause_calls(_call_noted if by_calls else None):
        return False
    _noting = source.brief
    return True


def _resume() -> None:
    global _noting
    _noting = None
    torch_calls.resume_calls()


def _watch_again() -> None:
    if _noting is not None:
        _place_ended_spans()
        _noting.stop()


def _forked() -> None:
    cadence_log.forked()
    spans.forked()
    disabled_calls.forked()
    for source in _active:
        source.forked()


def _step_is_compiled_already(torch_module: Any) -> bool:
    """Whether `Optimizer.step` of any class has a cache entry: all share one wrapper's code."""
    wrapped = getattr(torch_module.optim.Optimizer, "profile_hook_step", None)
    codes = getattr(getattr(wrapped, "__code__", None), "co_consts", ())
    return any(torch_guards.cache_entries(code) for code in codes if hasattr(code, "co_code"))


def _watch_loaders(torch_module: Any) -> None:
    """Measures the wait for each batch of a DataLoader."""
    iterator: Any = torch_api.loader_iterator(torch_module)
    original = iterator.__next__

    @functools.wraps(original)
    def following(self: Any) -> Any:
        if not _active:
            return original(self)
        waiting = _entered(DATA_WAIT)
        try:
            return original(self)
        except BaseException as error:
            leave_out_this_frame(error)
            raise
        finally:
            _left(DATA_WAIT, waiting)

    undisturbed.never_compiled(torch_module, following, callees=True)
    iterator.__next__ = following


def _read_limit(session: Session) -> int | None:
    text = os.environ.get(STEPS_VARIABLE, "")
    try:
        return max(int(text), 1) if text else None
    except ValueError as error:
        session.fault(STEPS_VARIABLE, error)
        return None


# --- hooks: they run in the user's step, and must neither raise nor be compiled ---------------


def _optimizer_begins(optimizer: Any, _args: Any, _kwargs: Any) -> None:
    if undisturbed.is_traced():
        return
    key = id(optimizer)
    if _noting is not None:
        if _noting.key in (key, EVERY_MARK):
            return
        _watch_again()
    at = _monotonic()
    for source in _active:
        source.optimizer_began(key, at)


def _optimizer_ends(optimizer: Any, _args: Any, _kwargs: Any) -> None:
    if undisturbed.is_traced():
        return
    _place_ended_spans()
    at, key = _monotonic(), id(optimizer)
    if _noting is None or not (_noting.key == EVERY_MARK or _noting.took(key, at)):
        for source in _active:
            try:
                source.optimizer_ended(key, at)
                _ended(source, at)
            except Exception as error:
                source.clock.session.fault("optimizer step", error)
    if _limit is not None:
        _stop_if_done()


def _call_begins(key: int = 0) -> None:
    if spans.ended_rows and any(source.ended_by_calls for source in _active):
        spans.catch_up()
    at = _monotonic()
    for source in _active:
        try:
            source.call_began(key, at)
            if _callables is not None and source.clock.here:
                source.clock.enter(_callables.phase_of(key, source.clock), at)
        except Exception as error:
            source.clock.session.fault("compiled call", error)
    if _limit is not None:
        _stop_if_done()


def _call_ends(key: int = 0) -> None:
    at = _monotonic()
    for source in _active:
        try:
            if _callables is not None and source.clock.here:
                source.clock.leave(_callables.phase_of(key, source.clock), at)
                if source.source is CALL:
                    _ended(source, at, by_calls=True)
        except Exception as error:
            source.clock.session.fault("end of a compiled call", error)


def _call_noted(key: int) -> None:
    """A call begins that ends a step which is only noted; or one of another callable."""
    _place_ended_spans()
    at = _monotonic()
    if _noting is not None and _noting.took(key, at):
        if _limit is not None:
            _stop_if_done()
        return
    _watch_again()
    for source in _active:
        try:
            source.call_began(key, at)
        except Exception as error:
            source.clock.session.fault("compiled call", error)


def _backward_begins() -> list[StepClock]:
    if _noting is not None:
        return []
    for source in _active:
        # A compile runs the engine too, to trace it; only inside of a forward or a backward.
        if source.clock.phases.nested and torch_compiles.compiling():
            return []
    return _entered(BACKWARD)


def _backward_ends(entered: list[StepClock]) -> None:
    if entered:
        _left(BACKWARD, entered)


def _entered(phase: int) -> list[StepClock]:
    """A phase begins in this thread; the clocks that were told."""
    if _noting is not None:
        _place_ended_spans()
        _noting.fold()
    at = _monotonic()
    thread = threading.get_ident()
    clocks = [source.clock for source in _active if source.clock.thread == thread]
    for clock in clocks:
        clock.enter(phase, at)
    return clocks


def _left(phase: int, entered: list[StepClock]) -> None:
    at = _monotonic()
    for clock in entered:
        clock.leave(phase, at)


def _stop_if_done() -> None:
    """Ends the program like `sys.exit(0)`, from the main thread, when it has done its steps.

    The exception passes through the training loop: `finally` blocks, context managers and
    `atexit` run, and a bare `except Exception` does not swallow it.
    """
    if (
        _limit is not None
        and _active
        and _active[0].clock.session.step >= _limit
        and threading.current_thread() is threading.main_thread()
    ):
        raise SystemExit(0)
