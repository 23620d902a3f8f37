"""Every call of a compiled callable from eager code, with the shapes of its tensors.

Shapes are read before the call begins, from its arguments, and nothing of them is kept. Calls are
told one by one up to a limit, so that they can be counted by step; after it they are added up.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from compilediag_harness.base.session import Session
from compilediag_harness.collectors.shapes import ShapeReader, Shapes, elements, samples, spelled
from compilediag_harness.shapes import shape_log
from compilediag_harness.source.source_locations import of_code
from compilediag_harness.torch_internals import torch_calls, torch_open_calls
from compilediag_harness.wire import CompiledCallsMade, Location

TOLD_ONE_BY_ONE = 50_000
"""Calls of one process."""

WRITE_EVERY_S = 0.25
"""Calls are written at the end of a step when the last writing is older than this, in seconds..."""

MOST_ROWS = 4096
"""... or in a call, when so many are not written."""

MOST_CALLABLES = 256
"""Callables told apart; the others are one, without a name."""

MOST_SHAPES = 256
"""Combinations of callable and shapes told apart between two writings."""

OTHERS = -1


class Invocations:
    """The calls that one session has not been told yet."""

    def __init__(self, session: Session, torch_module: Any) -> None:
        self.session = session
        self._reader = ShapeReader(torch_module)
        self._module_type: type = torch_module.nn.Module
        # Reentrant: a finalizer or a signal handler of the program may call compiled code.
        self._lock = threading.RLock()
        self._numbers: dict[int, tuple[int, Any]] = {}
        self._places: list[Location] = []
        self._tensors: list[tuple[str, ...]] = []
        self._sums: dict[tuple[int, Shapes | None], list[int]] = {}
        self._padded: dict[int, int] = {}
        self._order: list[tuple[int, float]] = []
        self._left = TOLD_ONE_BY_ONE
        self._written = 0.0

    def called(self, key: int) -> None:
        """An outermost compiled call begins in this thread."""
        try:
            call = torch_open_calls.called_with()
            if call is None:
                return
            shapes = self._reader.read(call.args, call.kwargs)
            with self._lock:
                number = self._number(key, call)
                self._add(number, shapes)
                if shape_log.inside.depth:
                    self._padded[number] = self._padded.get(number, 0) + 1
            if len(self._order) >= MOST_ROWS:
                self.write()
        except Exception as error:
            self.session.fault("compiled call", error)

    def step_ended(self, _step: int, _compiled: bool) -> None:
        """Writes now and then."""
        if self._sums and self.session.now() - self._written >= WRITE_EVERY_S:
            self.write()

    def write(self) -> None:
        """Writes what has been called since the last time."""
        with self._lock:
            sums, self._sums = self._sums, {}
            order, self._order = self._order, []
            padded, self._padded = self._padded, {}
            places, tensors = list(self._places), list(self._tensors)
        now = self._written = self.session.now()
        if not sums:
            return
        numbers = sorted({number for number, _ in sums} - {OTHERS})
        shapes = list(dict.fromkeys(read for _, read in sums))
        self.session.emit(
            CompiledCallsMade(
                t=now,
                numbers=tuple(numbers),
                functions=tuple(places[number] for number in numbers),
                shapes=tuple(None if read is None else spelled(read) for read in shapes),
                samples=tuple(samples(read) for read in shapes),
                elements=tuple(elements(read) for read in shapes),
                callables=tuple(number for number, _ in sums),
                shape_places=tuple(shapes.index(read) for _, read in sums),
                counts=tuple(count for _, count in sums.values()),
                order=tuple(place for place, _ in order),
                at=tuple(self.session.at(moment) for _, moment in order),
                tensors=tuple(tensors[number] for number in numbers),
                padded=tuple(padded.get(number, 0) for number in numbers),
            )
        )

    def discard(self) -> None:
        """This process is a fork: what is not written belongs to the parent."""
        self._lock = threading.RLock()  # a thread that is not here may have held it
        self._sums, self._order, self._padded = {}, [], {}

    def _add(self, number: int, shapes: Shapes | None) -> None:
        row = (number, shapes)
        sums = self._sums
        if row not in sums and len(sums) >= MOST_SHAPES:
            row = (number, None)
        place_and_count = sums.setdefault(row, [len(sums), 0])
        place_and_count[1] += 1
        if self._left:
            self._left -= 1
            # Read here, after the step clock's own reading: a call that begins a step is in it.
            self._order.append((place_and_count[0], time.monotonic()))

    def _number(self, key: int, call: torch_open_calls.CalledWith) -> int:
        """A small number for a callable. Keys are addresses: one of another object, made after the
        first was freed, is another callable."""
        function = call.function
        owner = getattr(function, "__self__", None)
        it = owner if owner is not None else getattr(function, "__code__", function)
        known = self._numbers.get(key)
        if known is not None and (known[1] is None or known[1]() is it):
            return known[0]
        if len(self._places) >= MOST_CALLABLES:
            return OTHERS
        try:
            reference = weakref.ref(it)
        except TypeError:
            reference = None
        number = len(self._places)
        defined = self._defined(function, owner)
        self._places.append(_place(defined))
        self._tensors.append(self._names(defined, owner is not None, call))
        self._numbers[key] = (number, reference)
        return number

    def _defined(self, function: Any, owner: Any) -> Any:
        """What holds the code of a callable: of a module its `forward`."""
        if isinstance(owner, self._module_type):
            return getattr(type(owner), "forward", function)  # pyright: ignore[reportUnknownArgumentType]
        return function

    def _names(
        self, function: Any, bound: bool, call: torch_open_calls.CalledWith
    ) -> tuple[str, ...]:
        """The tensors of a call by the parameters they are given to."""
        code = getattr(function, "__code__", None)
        parameters = () if code is None else code.co_varnames[int(bound) : code.co_argcount]
        if len(call.args) > len(parameters):
            return ()
        given = {**dict(zip(parameters, call.args, strict=False)), **call.kwargs}
        return tuple(path for path, _ in self._reader.read((), given))


def _place(function: Any) -> Location:
    """Where it is defined."""
    code = getattr(function, "__code__", None)
    if code is None:
        return Location("", 0, type(function).__name__)
    place = of_code(code)
    name = getattr(code, "co_qualname", None) or getattr(function, "__qualname__", code.co_name)
    return Location(place.file, place.line, str(name))


# --- one per session --------------------------------------------------------------------------

_watched: dict[int, tuple[Invocations, Callable[[], None]]] = {}
_follows_forks = False


def install(session: Session, torch_module: Any) -> None:
    """Starts counting for `session`; call it after the steps, whose clock must be read first."""
    global _follows_forks
    calls = Invocations(session, torch_module)
    _watched[id(session)] = (calls, torch_calls.on_outermost_call(calls.called))
    session.step_listeners.append(calls.step_ended)
    if not _follows_forks and hasattr(os, "register_at_fork"):
        _follows_forks = True
        os.register_at_fork(after_in_child=_forked)


def _forked() -> None:
    for calls, _ in _watched.values():
        calls.discard()


def finish(session: Session) -> None:
    """Writes what is not written yet."""
    if id(session) in _watched:
        _watched[id(session)][0].write()


def uninstall(session: Session) -> None:
    """Stops counting for `session`; call `finish` before."""
    if id(session) in _watched:
        calls, forget = _watched.pop(id(session))
        forget()
        session.step_listeners.remove(calls.step_ended)
