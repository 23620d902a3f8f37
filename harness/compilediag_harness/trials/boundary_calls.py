"""Calls of functions of the program, watched as they are entered: those that are called again in
place of the compiled calls inside of them."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable
from typing import Any

from compilediag_harness.base.object_graph import iterate_frames
from compilediag_harness.blame.line_events import make_line_events
from compilediag_harness.blame.source_locations import get_definition
from compilediag_harness.torch_internals.torch_open_calls import is_in_compiled_call
from compilediag_harness.trials.plan import is_place_of
from compilediag_harness.wire import Location

_NOT_CALLED_AGAIN = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_MAX_FRAMES = 200


class BoundaryCalls:
    """Calls `begin(frame)` where one of some functions is entered, outside of compiled calls."""

    def __init__(
        self, places: Iterable[Location], begin: Callable[[types.FrameType], None]
    ) -> None:
        self._places, self._begin = tuple(places), begin
        self._codes: dict[types.CodeType, bool] = {}
        self.events = make_line_events(self)

    def contains(self, frame: types.FrameType | None) -> bool:
        """True if a call in progress, from `frame` outwards, is one of such a function."""
        return any(self._is_boundary(its.f_code) for its in iterate_frames(frame, _MAX_FRAMES))

    def handle_entry(self, frame: types.FrameType) -> None:
        """Handle a call that begins."""
        if self._is_boundary(frame.f_code) and not is_in_compiled_call():
            self._begin(frame)

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


def read_arguments(frame: types.FrameType) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Read the arguments of a call that has just begun from its local names; None for a call that
    cannot be made again."""
    code, names = frame.f_code, frame.f_locals
    if code.co_flags & _NOT_CALLED_AGAIN:
        return None
    parameters, rest, keywords = inspect.getargs(code)
    args = tuple(names[name] for name in parameters[: code.co_argcount])
    kwargs = {name: names[name] for name in parameters[code.co_argcount :]}
    if rest is not None:
        args += names[rest]
    return args, kwargs | (names[keywords] if keywords is not None else {})
