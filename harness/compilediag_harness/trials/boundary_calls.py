"""Calls of functions of the program that are kept in place of the compiled calls inside of them."""

from __future__ import annotations

import gc
import inspect
import sys
import types
from collections.abc import Iterable
from typing import Any

from compilediag_harness.base.object_graph import get_class, iterate_frames
from compilediag_harness.base.session import Session
from compilediag_harness.blame.line_events import Monitoring, TraceFunction
from compilediag_harness.blame.source_locations import get_definition
from compilediag_harness.torch_internals.torch_open_calls import is_in_compiled_call
from compilediag_harness.trials.kept_calls import CallKeeper, KeptCallable, list_optional
from compilediag_harness.trials.plan import is_place_of
from compilediag_harness.wire import Location

_NOT_CALLED_AGAIN = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_MAX_FRAMES = 200


class BoundaryCalls:
    """Keeps the calls of some functions as they are entered."""

    def __init__(self, session: Session, places: Iterable[Location], keeper: CallKeeper) -> None:
        self._session, self._places, self._keeper = session, tuple(places), keeper
        self._codes: dict[types.CodeType, bool] = {}
        self._functions: dict[types.CodeType, Any] = {}
        events = Monitoring if hasattr(sys, "monitoring") else TraceFunction
        self._events: Any = events(self)
        if not self._events.resume():
            keeper.leave_out(f"calls of {self._places[0].function}: {self._events.problem}")
        self.uninstall = self._events.close

    def contains(self, frame: types.FrameType | None) -> bool:
        """True if a call in progress, from `frame` outwards, is one of such a function."""
        return any(self._is_boundary(its.f_code) for its in iterate_frames(frame, _MAX_FRAMES))

    def handle_entry(self, frame: types.FrameType) -> None:
        """Keep the call that begins, of a function that is one of them."""
        if self._is_boundary(frame.f_code) and not is_in_compiled_call():
            with self._session.catch_faults("recording: a call of the program's is kept"):
                self._keep(frame)

    def handle_line(self, frame: types.FrameType, line: int) -> None:
        """Lines are of no interest."""

    def handle_exit(self, frame: types.FrameType) -> None:
        """Nor are ends."""

    def _is_boundary(self, code: types.CodeType) -> bool:
        known = self._codes.get(code)
        if known is None:
            place = get_definition(code)
            known = any(is_place_of(its, place, ()) for its in self._places)
            self._codes[code] = known
        return known

    def _keep(self, frame: types.FrameType) -> None:
        code, names = frame.f_code, frame.f_locals
        place = get_definition(code)
        if code.co_flags & _NOT_CALLED_AGAIN:
            self._keeper.leave_out(f"{place.function}: a generator or coroutine")
            return
        function = self._functions.get(code)
        if function is None:
            function = self._functions[code] = _find_function(frame)
        optional = list_optional(function)
        kept = self._keeper.find_callable(code, lambda: KeptCallable(place, code, optional))
        if kept is not None and function is not None:
            arguments = _read_arguments(code, names)
            self._keeper.keep(kept, function, lambda: function, arguments)


def _read_arguments(
    code: types.CodeType, names: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Read the arguments of a call that has just begun from its local names."""
    count, named = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    args = tuple(names[name] for name in code.co_varnames[:count])
    kwargs = {name: names[name] for name in code.co_varnames[count:named]}
    rest = iter(code.co_varnames[named:])
    if code.co_flags & inspect.CO_VARARGS:
        args += names[next(rest)]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        kwargs.update(names[next(rest)])
    return args, kwargs


def _find_function(frame: types.FrameType) -> Any:
    """Find the function that a frame is a call of; None where there is none any more."""
    referrers = gc.get_referrers(frame.f_code)
    functions = [its for its in referrers if get_class(its) is types.FunctionType]
    # A decorator may have made two of one code: that of the frame has its globals and variables.
    free = {name: frame.f_locals.get(name) for name in frame.f_code.co_freevars}
    for function in functions:
        cells = zip(frame.f_code.co_freevars, function.__closure__ or (), strict=True)
        same = all(cell.cell_contents is free[name] for name, cell in cells)
        if function.__globals__ is frame.f_globals and same:
            return function
    return None
