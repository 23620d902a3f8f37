"""Times the program's functions that are not compiled on purpose: hooks and metrics behind
`torch.compiler.disable`. Nothing is wrapped: torch's own wrapper tells when one is called."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from compilediag_harness.base.session import Session
from compilediag_harness.source import source_locations
from compilediag_harness.torch_internals import torch_calls, torch_disabling
from compilediag_harness.wire import DisabledCallsEnded, Location

WRITE_EVERY_S = 0.25
"""Sums are written when the last writing is older than this, in seconds."""

_MOST = 1024
"""Functions and phases that are told apart between two writings."""


def code_of(function: Any) -> Any:
    """The code object behind a function, method, partial or callable object; None without one."""
    while isinstance(function, functools.partial):
        function = function.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    behind = getattr(function, "_torchdynamo_orig_callable", function)
    code = getattr(behind, "__code__", None)
    if code is None:
        kind: type = behind.__class__
        code = getattr(vars(kind).get("__call__"), "__code__", None)
    return code


def own_code_of(function: Any) -> Any:
    """The same of a function that the program itself put behind `torch.compiler.disable`: neither
    torch's own nor a graph that the program's backend has compiled."""
    code = code_of(function)
    if code is None or torch_disabling.disabled_by_torch(code):
        return None
    return None if source_locations.is_library(code.co_filename) else code


class DisabledCalls:
    """The sums of one session that are not written yet."""

    def __init__(self, session: Session, phase_at: Callable[[float], str]) -> None:
        self.session = session
        self._phase_at = phase_at
        self._sums: dict[tuple[Any, str], list[float]] = {}
        self._written = 0.0
        self.seen = False
        """A function of the program has been called."""

    def ended(self, function: Any, began: float, ended: float) -> None:
        """A call has ended; times are `time.monotonic()` readings."""
        code = own_code_of(function)
        if code is None:
            return
        self.seen = True
        key = (code, self._phase_at(began))
        sums = self._sums.get(key)
        seconds = ended - began
        if sums is not None:
            sums[0] += 1
            sums[1] += seconds
            sums[2] = max(sums[2], seconds)
        elif len(self._sums) < _MOST:
            self._sums[key] = [1, seconds, seconds]

    def step_ended(self, _step: int, _compiled: bool) -> None:
        """Writes now and then."""
        if self._sums:
            now = self.session.now()
            if now - self._written >= WRITE_EVERY_S:
                self.write(now)

    def discard(self) -> None:
        """This process is a fork: what is not written belongs to the parent."""
        self._sums = {}

    def write(self, now: float) -> None:
        """Writes what has been added up, and begins anew."""
        sums, self._sums, self._written = self._sums, {}, now
        if not sums:
            return
        counts, totals, longest = zip(*sums.values(), strict=True)
        self.session.emit(
            DisabledCallsEnded(
                t=now,
                functions=tuple(place_of(code) for code, _ in sums),
                phases=tuple(phase for _, phase in sums),
                counts=tuple(int(count) for count in counts),
                total_s=totals,
                longest_s=longest,
            )
        )


# --- one per session --------------------------------------------------------------------------

_watched: tuple[DisabledCalls, ...] = ()
_forget_functions: Callable[[], None] | None = None
_forget: Callable[[], None] | None = None


def install(session: Session, phase_at: Callable[[float], str]) -> None:
    """Starts timing for `session`; `phase_at` names the phase of the step that something which
    began at a reading of `time.monotonic()` is in."""
    global _watched, _forget_functions
    calls = DisabledCalls(session, phase_at)
    _watched = (*_watched, calls)
    session.step_listeners.append(calls.step_ended)
    if _forget_functions is None:
        _forget_functions = torch_disabling.on_function_disabled(_begin)


def _begin() -> None:
    """The program has a function to time. Before that nothing is looked at: torch calls disabled
    functions of its own several times a step."""
    global _forget
    if _forget is None and _watched:
        _forget = torch_calls.on_disabled_call(_ended)


def watching() -> bool:
    """Whether the program has functions to time: it disabled one, or called one that it may have
    disabled before anybody looked."""
    return torch_disabling.functions_disabled() or any(calls.seen for calls in _watched)


def finish(session: Session) -> None:
    """Writes what is not written yet."""
    for calls in _watched:
        if calls.session is session:
            calls.write(session.now())


def uninstall(session: Session) -> None:
    """Stops timing for `session`; call `finish` before."""
    global _watched, _forget, _forget_functions
    for calls in _watched:
        if calls.session is session:
            session.step_listeners.remove(calls.step_ended)
    _watched = tuple(calls for calls in _watched if calls.session is not session)
    if _watched:
        return
    if _forget_functions is not None:
        _forget_functions()
    if _forget is not None:
        _forget()
    _forget = _forget_functions = None


def forked() -> None:
    """This process is a fork."""
    for calls in _watched:
        calls.discard()


def _ended(function: Any, began: float, ended: float) -> None:
    for calls in _watched:
        try:
            calls.ended(function, began, ended)
        except Exception as error:
            calls.session.fault("call of a disabled function", error)


def place_of(code: Any) -> Location:
    """Where a function is defined, under the name that tells it best."""
    place = source_locations.of_code(code)
    return Location(place.file, place.line, getattr(code, "co_qualname", code.co_name))
