"""Finds the steps of a program that says nothing: hooks on optimizers, data loaders and compiled
calls, and `step()` for programs that do.

The hooks are the same for every session and stay in torch once they are there, without effect when
no session is left: a compiled optimizer step is guarded on torch's table of hooks, so taking ours
out again would make the user's program recompile.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from compilediag_harness import spans, torch_api, undisturbed
from compilediag_harness.live_optimizers import LiveOptimizers
from compilediag_harness.session import Session
from compilediag_harness.step_source import StepSource

STEPS_VARIABLE = "COMPILEDIAG_STEPS"
"""Environment variable: stop the program, with exit code 0, after this many steps."""

_active: tuple[StepSource, ...] = ()
"""One per session, in order of installation."""

_limit: int | None = None
"""Steps of the first session after which the program stops."""

_marks = 0
"""Calls of `step()` by the program."""

_hooked = False
_forget_calls: Callable[[], None] | None = None
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
    at = _monotonic()
    for source in _active:
        source.explicit(at)
    _stop_if_done()


def marks() -> int:
    """How often the program has called `step()` while a session was there."""
    return _marks


def _span_ended(began: float, ended: float) -> None:
    for source in _active:
        source.clock.spanned(began, ended)


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
    _active = (*_active, StepSource(session, LiveOptimizers(torch_module), _monotonic()))
    spans.install(session, torch_module, _span_ended)
    _put_hooks(session, torch_module)


def finish(session: Session) -> None:
    """Writes the steps and spans that are not written yet."""
    spans.finish(session)
    at = _monotonic()
    for source in _active:
        if source.clock.session is session:
            source.finish(at)


def uninstall(session: Session) -> None:
    """Stops counting for `session`; call `finish` before."""
    global _active, _forget_calls
    spans.uninstall(session)
    _active = tuple(source for source in _active if source.clock.session is not session)
    if not _active and _forget_calls is not None:
        _forget_calls()
        _forget_calls = None


def _put_hooks(session: Session, torch_module: Any) -> None:
    global _hooked, _forget_calls
    if _forget_calls is None:
        _forget_calls = torch_api.on_outermost_call(_call_begins)
    if _hooked:
        return
    undisturbed.never_compiled(torch_module, step, _optimizer_begins, _optimizer_ends, _waited)
    if _step_is_compiled_already(torch_module):
        return  # it was compiled without our hooks: putting them in would make it recompile
    _hooked = True
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forked)
    try:
        _watch_loaders(torch_module)
    except Exception as error:
        session.fault("data loader hook", error)
    optimizers: Any = torch_api.loaded("torch.optim.optimizer")  # no attribute of torch.optim
    optimizers.register_optimizer_step_pre_hook(_optimizer_begins)
    optimizers.register_optimizer_step_post_hook(_optimizer_ends)


def _forked() -> None:
    for source in _active:
        source.forked()


def _step_is_compiled_already(torch_module: Any) -> bool:
    """Whether `Optimizer.step` of any class has a cache entry: all share one wrapper's code."""
    wrapped = getattr(torch_module.optim.Optimizer, "profile_hook_step", None)
    codes = getattr(getattr(wrapped, "__code__", None), "co_consts", ())
    return any(torch_api.cache_entries(code) for code in codes if hasattr(code, "co_code"))


def _watch_loaders(torch_module: Any) -> None:
    """Measures the wait for each batch of a DataLoader."""
    iterator: Any = torch_api.loader_iterator(torch_module)
    original = iterator.__next__

    @functools.wraps(original)
    def following(self: Any) -> Any:
        if not _active:
            return original(self)
        began = _monotonic()
        try:
            return original(self)
        finally:
            _waited(began)

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
    if undisturbed.is_compiling():
        return
    at, key = _monotonic(), id(optimizer)
    for source in _active:
        source.optimizer_began(key, at)


def _optimizer_ends(optimizer: Any, _args: Any, _kwargs: Any) -> None:
    if undisturbed.is_compiling():
        return
    at, key = _monotonic(), id(optimizer)
    for source in _active:
        try:
            source.optimizer_ended(key, at)
        except Exception as error:
            source.clock.session.fault("optimizer step", error)
    if _limit is not None:
        _stop_if_done()


def _call_begins(key: int = 0) -> None:
    at = _monotonic()
    for source in _active:
        try:
            source.call_began(key, at)
        except Exception as error:
            source.clock.session.fault("compiled call", error)
    if _limit is not None:
        _stop_if_done()


def _waited(began: float) -> None:
    ended = _monotonic()
    for source in _active:
        source.clock.waited(began, ended)


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
