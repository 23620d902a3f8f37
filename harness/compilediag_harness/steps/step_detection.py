"""Decision what ends a step: `cd.step()`, else optimizers, else outermost compiled calls.

The better source wins as soon as it shows. Steps that a weaker source ended are held back while
they are few, and taken back when the better source turns out to mark the same loop.

Several optimizers (or compiled callables) make one step together: a step ends where the cycle
repeats. Optimizers end it after the last of the cycle, calls begin the next with the first.

No hook is called in an optimizer's step that is compiled: a call of a compiled callable that writes
an optimizer's parameters counts as the optimizer does, when it ends.
"""

from __future__ import annotations

import functools
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from compilediag_harness.base.session import Session
from compilediag_harness.steps.step_clock import StepClock, StepSampling
from compilediag_harness.torch_internals import torch_api, torch_open_calls
from compilediag_harness.user_api import spans

_MAX_CALLABLES = 4096


class CompiledCallables:
    """Phase (forward or optimizer) of each compiled callable, by the key that distinguishes it."""

    def __init__(self, torch_module: Any) -> None:
        self._torch = torch_module
        self._optimizer: type = torch_module.optim.Optimizer
        self._phases: dict[int, int] = {}

    def find_phase(self, key: int) -> int:
        """Find the phase of the call that begins now in this thread."""
        if key not in self._phases:
            if len(self._phases) >= _MAX_CALLABLES:
                self._phases.clear()
            self._phases[key] = self._detect_phase()
        return self._phases[key]

    def _detect_phase(self) -> int:
        if torch_api.is_in_optimizer_step() and not self._torch.is_grad_enabled():
            return spans.OPTIMIZER  # a kernel of its own; not the forward in its closure
        calls = torch_open_calls.this_thread.open
        owner = getattr(calls[-1].function, "__self__", None) if calls else None
        return spans.OPTIMIZER if isinstance(owner, self._optimizer) else spans.FORWARD


MAX_SEARCHES = 8
"""New callables at which an optimizer is looked for where none is alive: each search walks the
heap, and a model of compiled blocks has many."""


class _Call(NamedTuple):
    key: int
    alone: int
    """How many had begun with it; 0 where another thread was in one."""
    before: dict[int, list[int]]
    """By optimizer, the versions of its parameters."""


class OptimizerRegistry:
    """Optimizers of this process, looked for when a compiled callable is first called, and when
    one first repeats if there were none.

    A program that has made an optimizer will step it, so compiled calls before its first step are
    no steps: they are the micro-batches of one.
    """

    def __init__(self, torch_module: Any) -> None:
        self._torch = torch_module
        self._optimizers: list[weakref.ref[Any]] = []
        self._searches = 0
        self._open: dict[int, _Call] = {}
        """By thread, the call in progress."""
        self._begun = 0
        """Calls that have begun, in any thread."""
        self._updates: set[int] = set()
        self._engine_runs = torch_api.count_engine_runs()

    def has_live_optimizer(self) -> bool:
        """True if an optimizer is alive. Walks the garbage collector's objects, which takes tens of
        milliseconds, but not where no optimizer was ever made."""
        base: type = self._torch.optim.Optimizer
        kinds = _list_subclasses(base)
        # torch puts its profiling wrapper around a class's `step` when the first object is made
        # (`Optimizer._patch_step_function`, torch 2.7 to 2.15).
        # "hooked" is on the function of the class, and stays when the optimizers are gone.
        steps = [getattr(kind, "step", None) for kind in kinds]
        if hasattr(base, "profile_hook_step") and not any(getattr(s, "hooked", 0) for s in steps):
            return False
        # type(x) and not isinstance(x): the latter reads lazy proxies' `__class__`, which
        # runs the user's code.
        self._optimizers = [weakref.ref(obj) for obj in gc.get_objects() if type(obj) in kinds]
        return bool(self._optimizers)

    def begin_call(self, key: int, first: bool) -> None:
        """Handle that an outermost compiled call begins, the `first` of its callable or not."""
        none_lives = all(ref() is None for ref in self._optimizers)
        if first and none_lives and self._searches < MAX_SEARCHES:
            self._searches += 1
            self.has_live_optimizer()
        if self._optimizers:
            thread = threading.get_ident()
            self._open.pop(thread, None)  # one whose end was not reported
            self._begun += 1
            alone = 0 if self._open else self._begun
            self._open[thread] = _Call(key, alone, self._read_versions())

    def find_update(self) -> int:
        """Find the key of the call that ends if it was an optimizer's step, or had one in it; else
        0. Hooks are not called in compiled code, but it wrote most of the optimizer's parameters;
        one of them is also written by the forward of `nn.Embedding(max_norm=...)`. Of a callable
        that was no update before it is not decided while another thread calls one."""
        call = self._open.pop(threading.get_ident(), None)
        if call is None or not (call.key in self._updates or call.alone == self._begun):
            return 0
        after = self._read_versions()
        if any(
            2 * sum(map(int.__ne__, versions, after.get(optimizer, versions))) > len(versions)
            for optimizer, versions in call.before.items()
        ):
            self._updates.add(call.key)
            return call.key
        return 0

    def has_trained(self) -> bool:
        """True if the autograd engine has run since the last check: a micro-batch is over."""
        before, self._engine_runs = self._engine_runs, torch_api.count_engine_runs()
        return self._engine_runs != before

    def _read_versions(self) -> dict[int, list[int]]:
        """Read the versions of the parameters that each optimizer may write."""
        return {
            # No groups before Optimizer.__init__ has run.
            id(optimizer): torch_api.read_versions(getattr(optimizer, "param_groups", ()))
            for optimizer in (ref() for ref in self._optimizers)
            if optimizer is not None
        }


def _list_subclasses(base: type) -> set[type]:
    """List a class and everything derived from it."""
    kinds = {base}
    for kind in type.__subclasses__(base):
        kinds |= _list_subclasses(kind)
    return kinds


EXPLICIT, OPTIMIZER, CALL = "step()", "optimizer", "call"

EVERY_MARK = -1
"""The key of `step()`; optimizers and compiled callables have their addresses."""

OPTIMIZER_TRIAL = 3
"""Steps of optimizers that are held back in case `cd.step()` marks the same loop."""

CALL_TRIAL = 8
"""Steps of calls that are held back when no better source is in sight."""

AWAITED_CALLS = 64
"""Micro-batches after which an optimizer that exists is no longer waited for. Fewer would count
those of gradient accumulation as steps."""

AWAITED_MARKS = 32_768
"""The same for calls: bounds the memory of a long rollout before the first update."""

CYCLE_LIMIT = 1024
"""Members of a cycle after which it is cut: bounds the memory."""

EXAMINED_CALLS = 16
"""Calls of a compiled callable after which it is known to be no update, if none was one: looking
for one takes some ten microseconds for a hundred parameters."""


class StepSource:
    """Source of steps of one session: what ends them. Marks may come from any thread."""

    def __init__(
        self,
        session: Session,
        optimizers: OptimizerRegistry,
        now: float,
        pause: Callable[[StepSource, bool], bool] = lambda _source, _by_calls: False,
        resume: Callable[[], None] = lambda: None,
    ) -> None:
        """`pause` and `resume` are for unsampled steps; without them all are sampled."""
        self.clock = StepClock(session, now)
        self.sampling = StepSampling(self.clock, functools.partial(pause, self), resume)
        self.source: str | None = None
        self._optimizers = optimizers
        # Reentrant: a listener of the step's end may run code that marks a step.
        self._lock = threading.RLock()
        self._ending = False
        self._trial = 0
        """Steps the source in force has ended, while they are held back."""
        self._seen: set[int] = set()
        """Members of the cycle in progress."""
        self._previous: set[int] = set()
        """Members of the last whole cycle."""
        self._only = 0
        """The optimizer that makes whole cycles by itself, if one does."""
        self._first = self._leader = 0
        """First call of the cycle in progress, and of the last one of several callables."""
        self._in_cycles = False
        self._waiting = False
        self._training_calls = 0
        self._calls: dict[int, int] = {}
        """Examined calls, by callable."""
        self._updates: set[int] = set()
        """Callables of which a call was an optimizer's step."""
        self.optimizing_since: float | None = None
        """When the optimizer's step that is in progress began."""

    # --- marks ---

    def mark_step(self, at: float) -> None:
        """End the step in progress by `step()`, which from now on is the only mark."""
        with self._lock:
            if self._ending:
                return
            if self.source != EXPLICIT:
                self._upgrade(EXPLICIT, at)
            self.clock.cut_step(at)
            self._close(at)

    def begin_optimizer(self, at: float) -> None:
        """Begin an optimizer's step, inside of no other one."""
        self.optimizing_since = at
        self.clock.begin(at)

    def end_optimizer(self, key: int, began: float, at: float) -> None:
        """End that step; `key` is 0 if an exception ended it: it was none then."""
        self.optimizing_since = None
        with self._lock:
            self.clock.begin(began)
            self.clock.phases.add(spans.OPTIMIZER, began, at)
            if not key or self.source == EXPLICIT or self._ending:
                return
            if self.source != OPTIMIZER:
                self._upgrade(OPTIMIZER, at)
            self._advance_cycle(key, at)

    def begin_call(self, key: int, at: float) -> None:
        """Begin a call that may mark a step; `key` distinguishes what is called."""
        calls = self._calls.get(key, 0)
        may_update = calls < EXAMINED_CALLS or key in self._updates
        if self.source == EXPLICIT or not (may_update or self.ended_by_calls):
            return
        with self._lock:
            if self._ending:
                return
            if self.ended_by_calls:
                self.clock.begin(at)
                if self._seen and self._updates and key not in self._updates:
                    self._end_by_update(self._first, at)
                else:
                    self._mark_call(key, at)
            if may_update:
                self._calls[key] = calls + 1
                self._optimizers.begin_call(key, not calls)

    def end_call(self, at: float) -> None:
        """End the call in progress, and with it a step if it was an update."""
        key = self._optimizers.find_update()
        if not key or self.source == EXPLICIT:
            return
        with self._lock:
            self._updates.add(key)
            # As long as nothing else is called, each call begins a step: brief ones go unsampled.
            alone = self.source != OPTIMIZER and self._calls.keys() <= self._updates
            if not self._ending and not alone:
                self._end_by_update(key, at)

    def _end_by_update(self, key: int, at: float) -> None:
        """End a step by an update: calls of something else are no steps."""
        if self.source != OPTIMIZER:
            self._upgrade(OPTIMIZER, at)
        self._advance_cycle(key, at)

    def _mark_call(self, key: int, at: float) -> None:
        first, begins = not self._seen, self._is_cycle_begin(key)
        if self.source is None and not self._waiting and (first or begins):
            self._waiting = self._optimizers.has_live_optimizer()
        if not begins:
            return
        self.clock.cut_step(at)
        if self._waiting:
            self._training_calls += self._optimizers.has_trained()
            enough = self._training_calls >= AWAITED_CALLS or self.clock.tentative >= AWAITED_MARKS
            self._waiting = not (enough or self._updates)
        if not self._waiting:
            self.source = CALL
            self._close(at)

    @property
    def sole_mark(self) -> int:
        """Key of what alone ends steps, time after time: an optimizer, a compiled callable, or
        `EVERY_MARK` for `step()`. 0 where several do, or where that is not decided."""
        if self.source == EXPLICIT:
            return EVERY_MARK
        if self.source == OPTIMIZER:
            return 0 if self._seen or self._only in self._updates else self._only
        if self.source == CALL and not self._leader and len(self._seen) == 1:
            return self._first
        return 0

    @property
    def ended_by_calls(self) -> bool:
        """A call may end the step in progress: nothing better is known to."""
        return self.source is None or self.source == CALL

    def finish(self, at: float) -> None:
        """Decide what is open and write everything: the process ends, or the session."""
        with self._lock:
            if self.source == OPTIMIZER and self.clock.tentative:
                if self._is_joining():
                    self.clock.join()
                else:
                    self.clock.commit()
            elif self.source is None or self.source == CALL:
                self.source = CALL
                if self._seen:  # the last call's step: nothing later marks its end
                    self.clock.cut_step(at)
                    self._seen.clear()
                self.clock.commit()
            self.clock.write(at, self.source or CALL)

    def handle_fork(self) -> None:
        """Drop what is not written: this process is a fork, and that belongs to the parent."""
        self._lock = threading.RLock()  # a thread that is not here may have held it
        self.optimizing_since = None
        self.sampling.handle_fork()
        self.clock.discard()

    # --- cycles ---

    def _advance_cycle(self, key: int, at: float) -> None:
        clock, seen = self.clock, self._seen
        if key == self._only and not seen:  # the usual program: nothing to decide
            clock.cut_step(at)
            self._close(at)
            return
        if key in seen:
            clock.commit()  # the cycle was shorter than the last one: what is marked was a step
            self._previous = set(seen)
            seen.clear()
        elif seen and key in self._previous and self._is_joining():
            clock.join()  # new ones that stepped after the last step's end belonged to it
            self._previous |= seen
            self._only = 0
            seen.clear()
        elif len(seen) >= CYCLE_LIMIT:
            seen.clear()
        seen.add(key)
        clock.forget()
        clock.cut_step(at)
        if seen >= self._previous:
            self._previous = set(seen)
            self._only = key if len(seen) == 1 else 0
            seen.clear()
            self._close(at)
        else:
            self._in_cycles = True

    def _is_joining(self) -> bool:
        """True if no member of the last whole cycle has stepped since it ended: late members, or a
        phase change, which the next optimizer step decides."""
        return bool(self._previous) and self._previous.isdisjoint(self._seen)

    def _is_cycle_begin(self, key: int) -> bool:
        """True if this call is the first of a cycle that is not the program's first."""
        seen, first = self._seen, not self._seen
        again = not first and (key in seen or key == self._leader or len(seen) >= CYCLE_LIMIT)
        if first or again:
            seen.clear()
            self._first = key
        else:
            self._leader = self._first
        seen.add(key)
        return again

    # --- ends ---

    def _upgrade(self, source: str, at: float) -> None:
        """Switch to a better source: what the weaker one marked and may be no step goes."""
        clock = self.clock
        clock.forget()
        if self.source is not None:
            if source == EXPLICIT and self._are_all_held():
                clock.withdraw_steps()
            clock.write(at, self.source)
        self.source, self._trial = source, 0
        self._seen.clear()
        self._previous.clear()
        self._only = 0

    def _are_all_held(self) -> bool:
        """True if all steps are held back, as a better source may still take them back."""
        limit = OPTIMIZER_TRIAL if self.source == OPTIMIZER else CALL_TRIAL
        return self._trial <= limit

    def _close(self, at: float) -> None:
        """Close the step: the tentative boundaries are ends of steps."""
        clock = self.clock
        self._trial += clock.tentative
        self._ending = True
        try:
            clock.commit()
        finally:
            self._ending = False
        if clock.is_due(at):
            # How many may still change: all that are held back; the last, with several optimizers,
            # as one that steps after its end may belong to it.
            hold = len(clock.records) if self._are_all_held() else int(self._in_cycles)
            clock.write(at, self.source or CALL, 0 if self.source == EXPLICIT else hold)
