"""The answers of outermost compiled calls: what sampled calls return, and what is held after them.

Which calls are sampled depends on their number alone, so that every run of a program samples the
same ones.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from compilediag_harness.base.session import Session
from compilediag_harness.collectors.witness.paths import class_of
from compilediag_harness.source.source_locations import definition_of
from compilediag_harness.torch_internals import torch_calls, torch_open_calls
from compilediag_harness.torch_internals.torch_returns import Returning, is_outermost
from compilediag_harness.trials import reference
from compilediag_harness.trials.answers import AnswerReader
from compilediag_harness.trials.arguments import Arguments
from compilediag_harness.trials.settings import Settings
from compilediag_harness.trials.state import States
from compilediag_harness.wire import Answer, Location, OutputsSampled, StateRead, TrialPlan

FIRST = 3
"""Calls of each function that are sampled from its first on."""

EVERY = 64
"""Of the later ones, those whose number is a multiple of it, or a power of two."""

MAX_SAMPLED = 64
"""Of one function."""

MAX_FUNCTIONS = 256
MAX_WRAPPERS = 16


def is_sampled(call: int) -> bool:
    """Whether the call of this number is one of those that are sampled."""
    if call < FIRST:
        return True
    # Three, and the powers of two from 4 to 32, come before the multiples.
    return call <= (MAX_SAMPLED - 8) * EVERY and (call % EVERY == 0 or call & (call - 1) == 0)


class Function:
    """A function that is called compiled."""

    def __init__(self, chain: list[tuple[Location, Any]], states: States) -> None:
        self.chain = chain
        """Place and code of it, and of those that it wraps."""
        self.place, self.code = chain[-1]
        self.states = states
        self.calls = 0
        self.read: list[StateRead] = []
        """After the last sampled call."""


def _wrapped(function: Any) -> list[Any]:
    """A function and those that it wraps, as `functools.wraps` leaves them: one wrapper may stand
    around the functions of many classes."""
    found = [function]
    while len(found) < MAX_WRAPPERS:
        inner = getattr(found[-1], "__dict__", {}).get("__wrapped__")
        if inner is None or not hasattr(inner, "__code__"):
            break
        found.append(inner)
    return found


class _Sampled(threading.local):
    """The sampled call that is in progress in a thread."""

    call: tuple[Function, int, Returning, tuple[Answer, ...]] | None = None


class Outputs:
    """Looks at every outermost compiled call of a process."""

    def __init__(
        self,
        session: Session,
        torch: Any,
        plan: TrialPlan,
        arguments: Arguments,
        settings: Settings,
    ) -> None:
        self._session = session
        self._torch = torch
        self._plan = plan
        self._arguments, self._settings = arguments, settings
        self._reader = AnswerReader(torch)
        self._functions: dict[Any, Function] = {}
        self._lock = threading.Lock()
        self._sampled = _Sampled()
        self.uninstall = torch_calls.on_every_call(self._begins, self._ended)

    def _begins(self, _key: int) -> None:
        self._sampled.call = self._sampled.call if not is_outermost() else None
        started = time.monotonic()
        try:
            call = torch_open_calls.called_with()
            if call is not None and is_outermost():
                self._begins_with(call)
        except Exception as error:
            self._session.fault("trial: a compiled call begins", error)
        self._session.charge(time.monotonic() - started)

    def _begins_with(self, call: torch_open_calls.CalledWith) -> None:
        self._settings.compiled_call_begins()
        owner = getattr(call.function, "__self__", None)
        with self._lock:
            function = self._function(call, owner)
            if function is None:
                return
            number = function.calls
            function.calls += 1
        self._arguments.change(function.chain, owner, call)
        if self._plan.outputs:
            function.states.follow(owner, function.code, call)
            if is_sampled(number):
                returning = Returning()
                exact = self._exact(call)
                self._sampled.call = function, number, returning, exact

    def _exact(self, call: torch_open_calls.CalledWith) -> tuple[Answer, ...]:
        if not self._plan.reference or self._plan.stance != "force_eager":
            return ()
        return reference.in_float64(self._torch, self._reader, call)

    def _function(self, call: torch_open_calls.CalledWith, owner: Any) -> Function | None:
        function: Any = call.function
        if isinstance(owner, self._torch.nn.Module):  # its code is that of its `forward`
            function = getattr(type(owner), "forward", function)  # pyright: ignore[reportUnknownArgumentType]
        chain = _wrapped(function)
        code = getattr(chain[-1], "__code__", None)
        key: Any = class_of(function) if code is None else code
        known = self._functions.get(key)
        if known is None and len(self._functions) < MAX_FUNCTIONS:
            places = [(definition_of(each), getattr(each, "__code__", None)) for each in chain]
            states = States(places[-1][0], self._torch, self._reader)
            known = self._functions[key] = Function(places, states)
        return known

    def _ended(self, _key: int) -> None:
        try:
            self._arguments.ended()
        except Exception as error:
            self._session.fault("trial: an argument after the call", error)
        sampled = self._sampled.call
        if sampled is None:
            return
        function, number, returning, exact = sampled

        def returned(value: Any) -> None:
            self._sampled.call = None
            started = time.monotonic()
            try:
                self._sample(function, number, value, exact)
            except Exception as error:
                self._session.fault("trial: an output", error)
            self._session.charge(time.monotonic() - started)

        try:
            returning.read(returned)
        except Exception as error:
            self._session.fault("trial: a compiled call ends", error)

    def _sample(
        self, function: Function, number: int, value: Any, exact: tuple[Answer, ...]
    ) -> None:
        session = self._session
        answers, complete = self._reader.read(value)
        session.emit(
            OutputsSampled(
                session.now(), session.step, function.place, number, answers, complete, exact
            )
        )
        function.read = function.states.read(session.now(), number)

    def finish(self) -> None:
        """Writes what is held at the end, and after the last sampled call."""
        for function in list(self._functions.values()):
            for event in (*function.read, *function.states.read(self._session.now(), None)):
                self._session.emit(event)
