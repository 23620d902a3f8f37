"""Outermost compiled calls of a recorded process: kept to be made again, and their callers."""

from __future__ import annotations

import time
import types
from typing import Any

from compilediag_harness.base.object_graph import get_class
from compilediag_harness.base.session import Session
from compilediag_harness.blame.line_events import iterate_own_frames
from compilediag_harness.blame.source_locations import get_definition
from compilediag_harness.shapes import shape_log
from compilediag_harness.steps.step_detection import iterate_reached
from compilediag_harness.torch_internals import torch_calls, torch_open_calls, torch_replay
from compilediag_harness.trials.boundary_calls import BoundaryCalls
from compilediag_harness.trials.kept_calls import CallKeeper, KeptCallable, list_optional
from compilediag_harness.trials.plan import list_places, list_wrapped_functions
from compilediag_harness.wire import CallersSeen, RecordingPlan

EVERY_CALL = 64
EVERY = 16
"""The first calls of a callable are looked at, and of later ones so many: how often it was called
decides it, so that two states of a program keep the same calls. And each in another mode."""

MAX_STACKS = 3
MAX_CALLERS = 8
MAX_LOOKS = 64
"""Calls of a callable whose callers are looked at."""


class CallWatcher:
    """Keeps the outermost compiled calls of a process, and tells which functions they come from."""

    def __init__(self, session: Session, torch: Any, plan: RecordingPlan) -> None:
        self._session, self._torch = session, torch
        self._keeps = plan.vary_s > 0
        self.keeper = CallKeeper(torch)
        self._looks: dict[int, tuple[int, Any]] = {}
        """By key of a callable, how often it was called, and the mode of its last call."""
        self._remove = torch_calls.watch_every_call(self._handle_begin, lambda _key: None)
        self._boundaries: BoundaryCalls | None = None
        if self._keeps and plan.boundaries:
            self._boundaries = BoundaryCalls(session, plan.boundaries, self.keeper)

    def uninstall(self) -> None:
        """Look at no call any more; those that are kept stay."""
        self._remove()
        if self._boundaries is not None:
            self._boundaries.uninstall()

    def _handle_begin(self, key: int) -> None:
        if not torch_open_calls.is_outermost() or shape_log.inside.not_counted:
            return
        started = time.monotonic()
        with self._session.catch_faults("recording: a call is kept"):
            call = torch_open_calls.get_call_arguments()
            if call is not None and self._should_look(key, call):
                self._keep_call(call)
        self._session.add_overhead(time.monotonic() - started)

    def _should_look(self, key: int, call: torch_open_calls.CallArguments) -> bool:
        training = getattr(getattr(call.function, "__self__", None), "training", None)
        mode = self._torch.is_grad_enabled(), training, len(call.args), tuple(call.kwargs)
        count, before = self._looks.get(key, (0, None))
        self._looks[key] = count + 1, mode
        return count < EVERY_CALL or not count % EVERY or mode != before

    def _keep_call(self, call: torch_open_calls.CallArguments) -> None:
        module = self._torch.nn.Module
        # A module of a library is called by a function of torch's, one code for all of them.
        inside = getattr(call.function, "__wrapped__", None)
        root = inside if issubclass(get_class(inside), module) else call.function
        functions = list_wrapped_functions(self._torch, root)
        code = getattr(functions[-1], "__code__", None)

        def make_callable() -> KeptCallable:
            names = iterate_reached(functions[-1], code) if code is not None else ()
            reached = tuple(its for its in names if issubclass(get_class(its), module))
            place, optional = list_places(functions)[-1][0], list_optional(functions[-1])
            return KeptCallable(place, code, optional, reached)

        kept = self.keeper.find_callable(code or get_class(root), make_callable)
        if kept is None:
            return
        kept.calls += 1
        caller = torch_open_calls.this_thread.open[-1].frame.f_back
        if kept.calls <= MAX_LOOKS and len(kept.stacks) < MAX_STACKS:
            self._note_callers(kept, caller)
        inside = self._boundaries is not None and self._boundaries.contains(caller)
        if self._keeps and not inside:
            get_wrapper = torch_replay.make_wrapper_getter()
            self.keeper.keep(kept, root, get_wrapper, (call.args, call.kwargs))

    def _note_callers(self, kept: KeptCallable, caller: types.FrameType | None) -> None:
        codes = [frame.f_code for frame in iterate_own_frames(caller)]
        # "<module>", "<lambda>" and the like cannot be called by name.
        named = [code for code in codes if not code.co_name.startswith("<")][:MAX_CALLERS]
        if tuple(named) in kept.stacks:
            return
        kept.stacks.add(tuple(named))
        parameters = [
            code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] for code in named
        ]
        callers = tuple(map(get_definition, named))
        now = self._session.now()
        self._session.emit(CallersSeen(now, kept.place, callers, tuple(parameters)))
