"""How long each outermost call of a compiled callable takes, by callable and step.

It takes the same two readings of the clock in a compiled run and in one under "force_eager", so
that both can be compared. In unsampled steps no call is reported, and none is timed.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from compilediag_harness.base.session import Session
from compilediag_harness.torch_internals import torch_calls, torch_open_calls
from compilediag_harness.torch_internals.torch_open_calls import is_outermost
from compilediag_harness.trials.plan import places_of, wrapped_functions
from compilediag_harness.wire import CallsTimed, Location

MAX_ROWS = 50_000
"""Rows of one process: callable and step, with the calls in it."""

MAX_CALLABLES = 256
"""Of which the code is kept."""

WRITE_ROWS = 2048
WRITE_S = 1.0
"""Rows are written at the end of a step when so many wait, or they were last written so long ago: a
run that is ended loses no more."""


class _InThread(threading.local):
    began = 0.0
    """When the outermost call in progress began; 0 where there is none."""
    place: Location | None = None
    """What it calls."""


class CallSeconds:
    """Times the calls of one session."""

    def __init__(self, session: Session, torch: Any) -> None:
        self._session, self._torch = session, torch
        self._places: dict[Any, Location] = {}
        self._rows: dict[tuple[Location, int], list[float]] = {}
        self._left = MAX_ROWS
        self._written = session.now()
        self._calls = _InThread()
        self._lock = threading.Lock()
        self.uninstall = torch_calls.on_outermost_call(self._begins, self._ended)
        session.step_listeners.append(self._step_ended)

    def _begins(self, _key: int) -> None:
        if not is_outermost():  # a part of the call in progress
            return
        calls = self._calls
        try:
            calls.place = self._place()
        except Exception as error:
            calls.place = None
            self._session.fault("trial: a compiled call is timed", error)
        calls.began = time.perf_counter()

    def _ended(self, _key: int) -> None:
        ended, began, place = time.perf_counter(), self._calls.began, self._calls.place
        # The wrappers of calls inside it have ended before it does: this is the last of them.
        if not began or torch_open_calls.in_compiled_call():
            return
        self._calls.began = 0.0
        if place is None:
            return
        with self._lock:
            row = self._rows.get((place, self._session.step))
            if row is None:
                if not self._left:
                    return
                self._left -= 1
                row = self._rows[place, self._session.step] = [0, 0.0]
            row[0] += 1
            row[1] += ended - began

    def _place(self) -> Location | None:
        """The code that is called; None where it has none, or there are too many."""
        function: Any = torch_open_calls.this_thread.open[-1].function
        module: type = self._torch.nn.Module
        # A module of a library is called by a function of torch's, one code for all of them.
        inner = getattr(function, "__wrapped__", None)
        function = inner if isinstance(inner, module) else function
        owner = getattr(function, "__self__", function)
        # The code or the class itself, not its address, which another one may get.
        code: Any = getattr(function, "__code__", None)
        if isinstance(owner, module):
            code = type(owner)  # pyright: ignore[reportUnknownVariableType]
        if code is None:
            return None
        if code not in self._places and len(self._places) < MAX_CALLABLES:
            self._places[code] = places_of(wrapped_functions(self._torch, function))[-1][0]
        return self._places.get(code)

    def _step_ended(self, _step: int, _compiled: bool) -> None:
        if self._session.now() - self._written >= WRITE_S or len(self._rows) >= WRITE_ROWS:
            self.finish()

    def finish(self) -> None:
        """Writes what is not written."""
        with self._lock:
            rows, self._rows = self._rows, {}
        self._written = self._session.now()
        if not rows:
            return
        cuda = getattr(self._torch, "cuda", None)
        places = list(dict.fromkeys(place for place, _ in rows))
        self._session.emit(
            CallsTimed(
                t=self._session.now(),
                functions=tuple(places),
                callables=tuple(places.index(place) for place, _ in rows),
                steps=tuple(step for _, step in rows),
                counts=tuple(int(count) for count, _ in rows.values()),
                seconds=tuple(seconds for _, seconds in rows.values()),
                on_device=bool(cuda is not None and cuda.is_initialized()),
            )
        )
