"""Finds the steps of a program that marks none, and their phases: hooks on optimizers, data
loaders, compiled calls and the autograd engine, and `step()` for programs that do.

The hooks are the same for every session and stay in torch once they are there, without effect when
no session is left. Dynamo traces none of them, and is guarded on none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from compilediag_harness.base import process_options
from compilediag_harness.base.session import Session, in_forks
from compilediag_harness.steps import disabled_calls, phases, step_hooks
from compilediag_harness.steps.step_hooks import clock_of, step
from compilediag_harness.torch_internals import (
    dynamo_skip,
    torch_api,
    torch_calls,
)
from compilediag_harness.user_api import cadence, spans
from compilediag_harness.user_api.spans import BACKWARD, DATA_WAIT

__all__ = ["clock_of", "finish", "install", "step", "uninstall"]

_hooked = False
_forget_calls: Callable[[], None] | None = None
_forget_disabling: Callable[[], None] | None = None


def install(session: Session, torch_module: Any) -> None:
    """Starts counting steps and spans for `session`; call it when torch is imported."""
    global _hooked, _forget_calls, _forget_disabling
    dynamo_skip.bind(torch_module)
    source = step_hooks.add(session, torch_module)
    source.clock.phases.before_flattening = step_hooks.attribute_ended_spans
    source.clock.device = phases.watch(session, torch_module)
    disabled_calls.install(session, functools.partial(step_hooks.phase_at, source))
    spans.install(session, torch_module, step_hooks.attribute_spans)
    cadence.install(session, torch_module)
    if _forget_calls is None:
        _forget_calls = torch_calls.on_outermost_call(step_hooks.call_begins, step_hooks.call_ends)
        # Each call of a function that is disabled while steps are unsampled is to be timed, too.
        _forget_disabling = torch_calls.on_function_disabled(step_hooks.sample_again)
    if not _hooked:
        _hooked = True
        in_forks.append(_forked)
        begins, ends = step_hooks.phase_begins, step_hooks.phase_ends
        backward_ends = functools.partial(ends, BACKWARD)
        torch_api.around_backward(torch_module, step_hooks.backward_begins, backward_ends)
        torch_api.around_recorded(
            torch_module,
            (step_hooks.optimizer_begins, step_hooks.optimizer_ends),
            (functools.partial(begins, DATA_WAIT), functools.partial(ends, DATA_WAIT)),
        )


def finish(session: Session) -> None:
    """Writes the steps and spans that are not written yet."""
    spans.finish(session)
    cadence.sinks.finish(session)
    step_hooks.finish(session)
    disabled_calls.sinks.finish(session)


def uninstall(session: Session) -> None:
    """Stops counting for `session`; call `finish` before."""
    global _forget_calls, _forget_disabling
    step_hooks.sample_again()
    spans.uninstall(session)
    cadence.sinks.uninstall(session)
    was_the_last = step_hooks.remove(session)
    disabled_calls.uninstall(session)
    session.step_listeners.clear()
    if was_the_last:
        if _forget_calls is not None:
            _forget_calls()
        if _forget_disabling is not None:
            _forget_disabling()
        _forget_calls = _forget_disabling = None


def _forked() -> None:
    spans.forked()
    step_hooks.forked()


def drive(train: Callable[[int], object], steps: int = 60) -> int:
    """Calls `train(0)`, `train(1)`, ... and returns how often.

    Each call is one step, unless `train` calls `step()` itself. `compilediag run --steps N` sets
    the number of steps, in place of `steps`; what follows the loop then still runs.

    Raises:
        ValueError: `steps` is negative.
    """
    if steps < 0:
        raise ValueError(f"drive: steps must be 0 or more, not {steps}")
    step_hooks.own_the_loop()
    steps = process_options.read().steps or steps
    for index in range(steps):
        before = step_hooks.marks()
        train(index)
        if step_hooks.marks() == before:
            step_hooks.step()
    return steps
