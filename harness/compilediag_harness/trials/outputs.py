"""Outermost compiled calls of a trial: what each is given is changed, what it returns is recorded;
how long calls take. A call of a `FixedShape` is one call, and may be checked for harm by padding.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import Any

from compilediag_harness.base.object_graph import get_class
from compilediag_harness.base.session import Session
from compilediag_harness.shapes import shape_log
from compilediag_harness.shapes.dims import ShapeUnusable
from compilediag_harness.shapes.padded_calls import Ended, PaddedCalls, call_listeners
from compilediag_harness.shapes.padding_check import check_padding
from compilediag_harness.shapes.side_effects import find_modules
from compilediag_harness.torch_internals import torch_calls, torch_open_calls
from compilediag_harness.torch_internals.torch_compiles import is_compile_in_progress
from compilediag_harness.torch_internals.torch_names import call_beside, subscribe
from compilediag_harness.torch_internals.torch_open_calls import ReturningCall, is_outermost
from compilediag_harness.trials.kept_calls import CallKeeper
from compilediag_harness.trials.plan import (
    find_module_class,
    find_module_or_function,
    list_places,
    list_wrapped_functions,
)
from compilediag_harness.trials.recorder import Recorder
from compilediag_harness.trials.sampled_values import StateReader, ValueSampler
from compilediag_harness.trials.settings import PlannedArguments
from compilediag_harness.wire import CallsTimed, Location, StateRead, TrialPlan

_Chain = list[tuple[Location, Any]]
"""Place and code of a function that is called compiled, and of those that it wraps: itself last."""


class _ThreadState(threading.local):
    """Watched calls and batches in progress in one thread."""

    call: tuple[_Chain, ReturningCall] | None = None
    """The call that is recorded."""
    in_batch = False
    """A call of a `FixedShape`, which makes one compiled call or several: what the outermost gives
    is recorded, not what is padded."""
    function: _Chain | None = None
    """That of the compiled calls of the batch."""
    excluded: int = 0
    """Calls are none of the program's."""


class OutputWatcher:
    """Looks at every outermost compiled call of a process."""

    def __init__(
        self, session: Session, torch: Any, plan: TrialPlan, arguments: PlannedArguments
    ) -> None:
        self.session = session
        self._torch = torch
        self._arguments = arguments
        self._functions: dict[Any, _Chain] = {}
        # Reentrant: a finalizer or signal handler that runs in our code may call compiled code.
        self._lock = threading.RLock()
        self._this = _ThreadState()
        recording = plan.recording
        self.recorder = None if recording is None else Recorder(session, torch, recording.seed)
        self.keeper = None if recording is None else CallKeeper(session, torch, recording)
        self._of_shapes: dict[int, _Chain] = {}
        self._checks_padding, self._checked = plan.check_padding, set[tuple[Any, ...]]()
        undo = contextlib.ExitStack()
        undo.callback(torch_calls.watch_every_call(self._handle_begin, self._handle_end))
        undo.callback(subscribe(call_listeners, self._begin_batch))
        self.uninstall = undo.close
        self._states = StateReader(torch, ValueSampler(torch))
        """Followed in a recorded run."""
        self._last_read: list[StateRead] = []
        """Of objects that are gone."""
        if recording is not None:
            undo.callback(self._states.watch_ends(self._handle_object_end))
            optimizer = torch.optim.Optimizer
            remover = call_beside(optimizer, "__init__", after=self._follow_optimizer)
            if remover is not None:
                undo.callback(remover)

    def _handle_begin(self, _key: int) -> None:
        # What is left of a call whose end was not seen: it holds the frame of torch's wrapper.
        left = self._this.call if is_outermost() else None
        if left is not None:
            self._this.call = None
            self._record_error(left[0], None)
        with self.session.charge_block("trial: a compiled call begins"):
            call = torch_open_calls.get_call_arguments()
            if call is not None and is_outermost() and not self._this.excluded:
                self._begin_call(call)

    def _begin_call(self, call: torch_open_calls.CallArguments) -> None:
        called = find_module_or_function(self._torch, call.function)
        is_module = issubclass(get_class(called), self._torch.nn.Module)
        owner = getattr(called, "__self__", called if is_module else None)
        local, warming = self._this, shape_log.inside.not_counted > 0
        functions = list_wrapped_functions(self._torch, called)
        code = getattr(functions[-1], "__code__", None)
        key: Any = get_class(functions[0]) if code is None else code
        with self._lock:
            function = self._functions.get(key)
            if function is None:
                function = self._functions[key] = list_places(functions)
        self._arguments.change_arguments(function, owner, call)
        if self.keeper is not None and not warming:
            self.keeper.look_at_call(function[-1][0], called, functions[-1], call)
        if local.in_batch:
            local.function = local.function or function
        elif warming or not self.recorder:
            return
        if self.recorder:
            self._states.follow(owner, function[-1][1], call)
            if not local.in_batch:
                local.call = function, ReturningCall()

    def _begin_batch(
        self, calls: PaddedCalls, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Ended:
        """Begin a call of a `FixedShape`, whose padding is checked if that is planned."""
        local, number = self._this, calls.declared.number
        if self._checks_padding:
            charged = self.session.charge_block("trial: a check of padding")
            local.excluded += 1
            try:  # what cannot be padded the call itself raises
                with charged, contextlib.suppress(ShapeUnusable):
                    self._check_padding(calls, args, kwargs)
            finally:
                local.excluded -= 1
        if local.in_batch:
            return lambda _result, _returned: None
        # Invariant: the end is called whatever happens, or no later call here is recorded.
        local.in_batch = True
        local.function = self._of_shapes.get(number)  # a batch without rows calls nothing

        def end_batch(result: Any, returned: bool) -> None:
            local.in_batch, function = False, local.function
            if function is None:
                return
            self._of_shapes[number] = function
            if returned:
                self._record(function, result)
            else:
                self._record_error(function, sys.exc_info()[1])

        return end_batch

    def _check_padding(
        self, calls: PaddedCalls, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Check padding once a mode: it may harm in one only, as batch norm does in training."""
        modules = find_modules(calls.torch, calls.settings.function)
        training = tuple(bool(module.training) for module in modules)
        mode = (calls.declared.number, calls.torch.is_grad_enabled(), training)
        # A batch without rows has nothing to pad: the next call shows.
        if mode not in self._checked and 0 not in calls.read(args, kwargs).sizes:
            self._checked.add(mode)
            check_padding(calls, args, kwargs, gradients=True)

    def _handle_end(self, _key: int) -> None:
        if self._this.call is None:
            return
        function, returning = self._this.call

        def record_result(value: Any) -> None:
            self._this.call = None
            self._record(function, value)

        is_read = False
        with self.session.catch_faults("trial: a compiled call ends"):
            is_read = returning.read(record_result)
        # The recorded call is over, unless this one was inside it.
        if not is_read and not torch_open_calls.is_in_compiled_call():
            self._this.call = None
            self._record_error(function, returning.find_error())

    def _record(self, function: _Chain, value: Any) -> None:
        if self.recorder is not None:
            with self.session.charge_block("trial: an output"):
                self.recorder.record(function[-1][0], value)

    def _record_error(self, function: _Chain, error: BaseException | None) -> None:
        if self.recorder is not None:
            with self.session.charge_block("trial: a call that raised"):
                self.recorder.record_error(function[-1][0], error)

    def _follow_optimizer(self, _made: None, optimizer: Any, *_: Any, **__: Any) -> None:
        with self.session.catch_faults("trial: an optimizer"):
            self._states.follow_object(optimizer)

    def _handle_object_end(self, value: Any) -> None:
        # What is read while Dynamo traces would be fake.
        if not is_compile_in_progress():
            with self.session.charge_block("trial: an object that is gone"):
                self._last_read += self._states.read_last(self.session.now(), value)

    def finish(self) -> None:
        """Emit what a recorded run holds at its end."""
        for event in (*self._states.read(self.session.now()), *self._last_read):
            self.session.emit(event)


# --- how long calls take --------------------------------------------------------------------------

MAX_ROWS = 50_000
"""Rows of one process: callable and step, with the calls in it."""

MAX_CALLABLES = 256
"""Of which the code is stored."""

WRITE_ROWS = 2048
WRITE_S = 1.0
"""Rows are written at the end of a step when so many wait, or they were last written so long ago: a
run that is ended loses no more."""


class _Timed(threading.local):
    began = 0.0
    """When the outermost call in progress began, by `time.perf_counter`; 0 where there is none."""
    place: Location | None = None
    """The code that it calls."""


class CallSeconds:
    """The seconds of each outermost call of a compiled callable, by callable and step, with the
    same two readings of the clock in a compiled run and in one under "force_eager". In unsampled
    steps no call is reported, and none is timed."""

    def __init__(self, session: Session, torch: Any) -> None:
        self.session, self._torch = session, torch
        self._places: dict[Any, Location] = {}
        self._rows: dict[tuple[Location, int], list[float]] = {}
        self._left = MAX_ROWS
        self._written = session.now()
        self._calls = _Timed()
        self._lock = threading.RLock()  # as that of `OutputWatcher`
        self.uninstall = torch_calls.watch_outermost_calls(self._start_timing, self._stop_timing)
        session.step_listeners.append(self._handle_step_end)

    def _start_timing(self, _key: int) -> None:
        if not is_outermost():  # a part of the call in progress
            return
        calls = self._calls
        calls.place = None
        with self.session.catch_faults("trial: a compiled call is timed"):
            calls.place = self._find_called_code()
        calls.began = time.perf_counter()

    def _stop_timing(self, _key: int) -> None:
        ended, began, place = time.perf_counter(), self._calls.began, self._calls.place
        # The wrappers of calls inside it have ended before it does: this is the last of them.
        if not began or torch_open_calls.is_in_compiled_call():
            return
        self._calls.began = 0.0
        if place is None:
            return
        with self._lock:
            key = place, self.session.step
            row = self._rows.get(key)
            if row is None:
                if not self._left:
                    return
                self._left -= 1
                row = self._rows.setdefault(key, [0, 0.0])  # not over one made meanwhile
            row[0] += 1
            row[1] += ended - began

    def _find_called_code(self) -> Location | None:
        """Find the code that is called; None where it has none, or there are too many."""
        called = torch_open_calls.this_thread.open[-1].function
        function = find_module_or_function(self._torch, called)
        # Invariant: keyed by the code or the class itself, not by its address, which another one
        # may get.
        code: Any = find_module_class(self._torch, function) or getattr(function, "__code__", None)
        if code is None:
            return None
        if code not in self._places and len(self._places) < MAX_CALLABLES:
            self._places[code] = list_places(list_wrapped_functions(self._torch, function))[-1][0]
        return self._places.get(code)

    def _handle_step_end(self, _step: int, _compiled: bool) -> None:
        if self.session.now() - self._written >= WRITE_S or len(self._rows) >= WRITE_ROWS:
            self.finish()

    def finish(self) -> None:
        """Emit the rows that wait; counts by callable and step, seconds summed."""
        with self._lock:
            rows, self._rows = self._rows, {}
        self._written = self.session.now()
        if not rows:
            return
        called, steps = zip(*rows, strict=True)
        counts, seconds = zip(*rows.values(), strict=True)
        places = tuple(dict.fromkeys(called))
        self.session.emit(
            CallsTimed(
                t=self.session.now(),
                functions=places,
                callables=tuple(map(places.index, called)),
                steps=steps,
                counts=tuple(map(int, counts)),
                seconds=seconds,
                on_device=bool(self._torch.cuda.is_initialized()),
            )
        )
