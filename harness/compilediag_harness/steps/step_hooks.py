"""What runs in the user's step: hooks that report to every session what begins and ends there.

They are the same for every session, must neither raise nor be compiled, and have no effect while
no session is there. `steps.py` puts them into torch.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from compilediag_harness.base.session import Session
from compilediag_harness.base.step_phases import BACKWARD, DATA_WAIT
from compilediag_harness.steps import disabled_calls, span_attribution, step_limit
from compilediag_harness.steps.compiled_callables import CompiledCallables
from compilediag_harness.steps.optimizer_registry import OptimizerRegistry
from compilediag_harness.steps.step_clock import StepClock
from compilediag_harness.steps.step_detection import CALL, EVERY_MARK, StepSource
from compilediag_harness.steps.step_sampling import StepSampling
from compilediag_harness.torch_internals import dynamo_skip, torch_calls, torch_compiles
from compilediag_harness.torch_internals.dynamo_skip import leave_out_this_frame
from compilediag_harness.user_api import spans
from compilediag_harness.user_api.span_batches import Row

_active: tuple[StepSource, ...] = ()
"""One per session, in order of installation."""

_marks = 0
"""Calls of `step()` by the program."""

_unsampled: StepSampling | None = None
"""Set while steps are not sampled: there is one session then."""

_callables: CompiledCallables | None = None
_monotonic = time.monotonic


def step() -> None:
    """Ends the step in progress. Only for loops that neither an optimizer step nor a compiled call
    marks; the first call makes `step()` the only mark. Inside of compiled code it does nothing.

    Raises:
        SystemExit: after the last step that `compilediag run --steps N` allows.
    """
    if not _active or dynamo_skip.is_compiling():
        return
    _end_explicitly()


def _end_explicitly() -> None:
    global _marks
    _marks += 1
    attribute_ended_spans()
    at = _monotonic()
    if _unsampled is None or not _unsampled.record(EVERY_MARK, at):
        sample_again()
        for source in _active:
            source.explicit(at)
            _ended(source, at)
    if step_limit.limit is not None:
        _stop_if_done()


def marks() -> int:
    """How often the program has called `step()` while a session was there."""
    return _marks


def add(session: Session, torch_module: Any) -> StepSource:
    """The hooks report to `session` from now on. Returns what decides its steps."""
    global _active, _callables
    if not _active:
        step_limit.read(session)
    sample_again()
    source = StepSource(session, OptimizerRegistry(torch_module), _monotonic(), _pause, _resume)
    _active = (*_active, source)
    _callables = _callables or CompiledCallables(torch_module)
    return source


def finish(session: Session) -> None:
    """Decides what is open of `session`, and writes its steps."""
    sample_again()
    at = _monotonic()
    for source in _active:
        if source.clock.session is session:
            source.sampling.fold()  # another thread may have recorded an end a moment too late
            source.finish(at)
            if source.clock.device is not None:
                source.clock.device.finish()


def remove(session: Session) -> bool:
    """The hooks do not report to `session` any more; whether it was the last."""
    global _active, _callables
    _active = tuple(source for source in _active if source.clock.session is not session)
    if not _active:
        _callables = None  # its keys are addresses, which other objects get meanwhile
    return not _active


def clock_of(session: Session) -> StepClock | None:
    """The clock of a session's steps; None when none is installed."""
    return next((one.clock for one in _active if one.clock.session is session), None)


def forked() -> None:
    """This process is a fork: what is not written belongs to the parent."""
    for source in _active:
        source.forked()


def attribute_spans(rows: Sequence[Row], ending: bool) -> Sequence[str | None]:
    """The phases of spans that have ended, as `spans.Attribution`."""
    return span_attribution.attribute(_active, _unsampled, rows, ending)


def attribute_ended_spans() -> None:
    """Before a step may end: spans belong to the one they ended in."""
    if spans.ended_rows:
        spans.catch_up()


def _ended(source: StepSource, at: float, *, by_calls: bool = False) -> None:
    """A sampled step has ended, or a call in it: the next ones may go unsampled."""
    if len(_active) == 1:
        source.sampling.ended(source.steady, source.source or "", at, by_calls=by_calls)


def _pause(source: StepSource, by_calls: bool) -> bool:
    """Calls are not reported any more, unless they mark the steps."""
    global _unsampled
    # The calls of the program's own disabled functions are counted, each of them.
    if disabled_calls.watching() or not torch_calls.pause_calls(
        _unsampled_call if by_calls else None
    ):
        return False
    _unsampled = source.sampling
    return True


def _resume() -> None:
    global _unsampled
    _unsampled = None
    torch_calls.resume_calls()


def sample_again() -> None:
    """Something is to be reported that is not while steps are unsampled: sampling begins again."""
    if _unsampled is not None:
        attribute_ended_spans()
        _unsampled.stop()


# torch calls the two with the optimizer it steps, for every session at once. Where `step` itself is
# compiled they are traced: `is_traced` makes them nothing there.


def optimizer_begins(optimizer: Any, _args: Any, _kwargs: Any) -> None:
    """Before an optimizer steps."""
    if dynamo_skip.is_traced():
        return
    key = id(optimizer)
    if _unsampled is not None:
        if _unsampled.key in (key, EVERY_MARK):
            return
        sample_again()
    at = _monotonic()
    for source in _active:
        source.optimizer_began(key, at)


def optimizer_ends(optimizer: Any, _args: Any, _kwargs: Any) -> None:
    """After an optimizer has stepped."""
    if dynamo_skip.is_traced():
        return
    attribute_ended_spans()
    at, key = _monotonic(), id(optimizer)
    if _unsampled is None or not (_unsampled.key == EVERY_MARK or _unsampled.record(key, at)):
        for source in _active:
            try:
                source.optimizer_ended(key, at)
                _ended(source, at)
            except Exception as error:
                source.clock.session.fault("optimizer step", error)
    if step_limit.limit is not None:
        _stop_if_done()


def call_begins(key: int = 0) -> None:
    """An outermost call of a compiled callable begins; `key` distinguishes callables."""
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
    if step_limit.limit is not None:
        _stop_if_done()


def call_ends(key: int = 0) -> None:
    """That call has ended."""
    at = _monotonic()
    for source in _active:
        try:
            if _callables is not None and source.clock.here:
                source.clock.leave(_callables.phase_of(key, source.clock), at)
                if source.source is CALL:
                    _ended(source, at, by_calls=True)
        except Exception as error:
            source.clock.session.fault("end of a compiled call", error)


def _unsampled_call(key: int) -> None:
    """A call begins that ends an unsampled step; or one of another callable."""
    attribute_ended_spans()
    at = _monotonic()
    if _unsampled is not None and _unsampled.record(key, at):
        if step_limit.limit is not None:
            _stop_if_done()
        return
    sample_again()
    for source in _active:
        try:
            source.call_began(key, at)
        except Exception as error:
            source.clock.session.fault("compiled call", error)


def backward_begins() -> list[StepClock]:
    """The autograd engine begins; the clocks that were called."""
    if _unsampled is not None:
        return []
    for source in _active:
        # A compile runs the engine too, to trace it; only inside a forward or a backward.
        if source.clock.phases.nested and torch_compiles.compiling():
            return []
    return phase_begins(BACKWARD)


def backward_ends(clocks: list[StepClock]) -> None:
    """With what `backward_begins` returned."""
    phase_ends(BACKWARD, clocks)


def timed_batches(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The `__next__` of an iterator over batches, with the wait for each of them measured."""

    @functools.wraps(original)
    def measured(self: Any) -> Any:
        if not _active:
            return original(self)
        clocks = phase_begins(DATA_WAIT)
        try:
            return original(self)
        except BaseException as error:
            leave_out_this_frame(error)
            raise
        finally:
            phase_ends(DATA_WAIT, clocks)

    return measured


def phase_begins(phase: int) -> list[StepClock]:
    """A phase begins in this thread; the clocks that were called."""
    if _unsampled is not None:
        attribute_ended_spans()
        _unsampled.fold()
    at = _monotonic()
    thread = threading.get_ident()
    clocks = [source.clock for source in _active if source.clock.thread == thread]
    for clock in clocks:
        clock.enter(phase, at)
    return clocks


def phase_ends(phase: int, clocks: list[StepClock]) -> None:
    """With what `phase_begins` returned."""
    at = _monotonic()
    for clock in clocks:
        clock.leave(phase, at)


def _stop_if_done() -> None:
    if _active:
        step_limit.stop_if_done(_active[0].clock.session.step)
