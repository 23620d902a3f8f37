"""Times the program's functions behind `torch.compiler.disable`, such as hooks and metrics.

Nothing is wrapped: torch's own wrapper reports each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compilediag_harness.base.object_graph import get_code
from compilediag_harness.base.session import Session, SessionSink, SessionSinks
from compilediag_harness.blame import source_locations
from compilediag_harness.torch_internals import torch_calls
from compilediag_harness.wire import DisabledCallsEnded

_MAX_SUMS = 1024
"""Functions and phases that are distinguished between two writings."""

PhaseFinder = Callable[[float], str]


def get_own_code(function: Any) -> Any:
    """Get the same of a function that the program itself put behind `torch.compiler.disable`; None
    for torch's own and for a graph that the program's backend has compiled."""
    code = get_code(function)
    if code is None or torch_calls.is_disabled_by_torch(code):
        return None
    return None if source_locations.is_library(code.co_filename) else code


class DisabledCalls(SessionSink):
    """Calls and seconds by function and phase that one session has not written yet."""

    find_phase_at: PhaseFinder
    """The phase of the step that something which began at a `time.monotonic()` reading is in."""
    called = False
    """A function of the program has been called."""

    def discard(self) -> None:
        super().discard()
        self._sums: dict[tuple[Any, str], list[float]] = {}

    def add_call(self, function: Any, began: float, ended: float) -> None:
        """Add one call, in `time.monotonic()` seconds, if it is of a function of the program."""
        code = get_own_code(function)
        if code is None:
            return
        self.called = True
        key, seconds = (code, self.find_phase_at(began)), ended - began
        sums = self._sums.get(key)
        if sums is not None:
            sums[0] += 1
            sums[1] += seconds
            sums[2] = max(sums[2], seconds)
        elif len(self._sums) < _MAX_SUMS:
            self._sums[key] = [1, seconds, seconds]

    def finish(self) -> None:
        now = self.session.now()
        sums, self._sums, self.written = self._sums, {}, now
        if not sums:
            return
        counts, totals, longest = zip(*sums.values(), strict=True)
        self.session.emit(
            DisabledCallsEnded(
                t=now,
                functions=tuple(source_locations.get_definition(code) for code, _ in sums),
                phases=tuple(phase for _, phase in sums),
                counts=tuple(int(count) for count in counts),
                total_s=totals,
                longest_s=longest,
            )
        )


sinks = SessionSinks(DisabledCalls)
_forget_functions: Callable[[], None] | None = None
_forget_calls: Callable[[], None] | None = None


def install(session: Session, find_phase_at: PhaseFinder) -> None:
    """Start timing for `session`; `find_phase_at` as in `DisabledCalls`."""
    global _forget_functions
    sinks.install(session)
    sink = sinks.all[-1]
    sink.find_phase_at = find_phase_at
    session.step_listeners.append(sink.handle_step_end)
    if _forget_functions is None:
        _forget_functions = torch_calls.watch_disabled_functions(_begin)


def _begin() -> None:
    """Begin to look at calls: the program has a function to time. Not before: torch calls disabled
    functions of its own several times a step."""
    global _forget_calls
    # Invariant: idempotent: torch_calls calls it for each function that is disabled.
    if _forget_calls is None and sinks.all:
        _forget_calls = torch_calls.watch_disabled_calls(_record_end)


def is_watching() -> bool:
    """True if the program has functions to time: it disabled one, or called one that it may have
    disabled before we watched."""
    return torch_calls.has_disabled_functions() or any(sink.called for sink in sinks.all)


def uninstall(session: Session) -> None:
    """Stop timing for `session`; call `sinks.finish` before."""
    global _forget_calls, _forget_functions
    sinks.uninstall(session)
    if sinks.all:
        return
    for forget in (_forget_functions, _forget_calls):
        if forget is not None:
            forget()
    _forget_calls = _forget_functions = None


def _record_end(function: Any, began: float, ended: float) -> None:
    for sink in sinks.all:
        try:
            sink.add_call(function, began, ended)
        except Exception as error:
            sink.session.record_fault("call of a disabled function", error)
