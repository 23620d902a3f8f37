"""What is known about optimizers that have not stepped yet: whether one exists at all.

A program that has made an optimizer will step it, so compiled calls before its first step are no
steps: they are the micro-batches of one.
"""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any, NamedTuple

from compilediag_harness.torch_internals import torch_api

SEARCHES = 8
"""New callables at which an optimizer is looked for where none is alive: each search walks the
heap, and a model of compiled blocks has many."""


class _Call(NamedTuple):
    key: int
    alone: int
    """How many had begun with it; 0 where another thread was in one."""
    before: dict[int, list[int]]
    """By optimizer, the versions of its parameters."""


class OptimizerRegistry:
    """The optimizers of this process, looked for when a compiled callable is first called, and when
    one first repeats if there were none."""

    def __init__(self, torch_module: Any) -> None:
        self._torch = torch_module
        self._found: list[weakref.ref[Any]] = []
        self._searches = 0
        self._open: dict[int, _Call] = {}
        """By thread, the call in progress."""
        self._begun = 0
        """Calls that have begun, in any thread."""
        self._updates: set[int] = set()
        self._engine_runs = torch_api.engine_runs()

    def expected(self) -> bool:
        """Whether an optimizer is alive. Walks the collector's objects, which takes tens of
        milliseconds, but not where no optimizer was ever made."""
        base: type = self._torch.optim.Optimizer
        kinds = _subclasses(base)
        if hasattr(base, "profile_hook_step") and not any(_was_made(kind) for kind in kinds):
            return False
        # type(x) and not isinstance(x): the latter reads lazy proxies' `__class__`, which
        # runs the user's code.
        self._found = [weakref.ref(one) for one in gc.get_objects() if type(one) in kinds]
        return bool(self._found)

    def call_begins(self, key: int, first: bool) -> None:
        """An outermost compiled call begins, the `first` of its callable or not."""
        none_lives = all(ref() is None for ref in self._found)
        if first and none_lives and self._searches < SEARCHES:
            self._searches += 1
            self.expected()
        if self._found:
            thread = threading.get_ident()
            self._open.pop(thread, None)  # one whose end was not reported
            self._begun += 1
            alone = 0 if self._open else self._begun
            self._open[thread] = _Call(key, alone, self._versions())

    def updated(self) -> int:
        """The key of the call that ends if it was a step of an optimizer, or contained one; else 0.
        Hooks are not called in compiled code, but it wrote most of the optimizer's parameters; one
        of them is also written by the forward of `nn.Embedding(max_norm=...)`. Of a callable that
        was no update before it is not decided while another thread calls one."""
        call = self._open.pop(threading.get_ident(), None)
        if call is None or not (call.key in self._updates or call.alone == self._begun):
            return 0
        after = self._versions()
        if any(
            2 * sum(map(int.__ne__, versions, after.get(one, versions))) > len(versions)
            for one, versions in call.before.items()
        ):
            self._updates.add(call.key)
            return call.key
        return 0

    def training(self) -> bool:
        """Whether the autograd engine has run since this was asked last: a micro-batch is over."""
        before, self._engine_runs = self._engine_runs, torch_api.engine_runs()
        return self._engine_runs != before

    def _versions(self) -> dict[int, list[int]]:
        """Of each optimizer the versions of the parameters that it may write."""
        return {
            # No groups before Optimizer.__init__ has run.
            id(one): torch_api.versions_of(getattr(one, "param_groups", ()))
            for one in (ref() for ref in self._found)
            if one is not None
        }


def _subclasses(base: type) -> set[type]:
    """A class and everything derived from it."""
    kinds = {base}
    for kind in type.__subclasses__(base):
        kinds |= _subclasses(kind)
    return kinds


def _was_made(kind: type) -> bool:
    """Whether torch has put its profiling wrapper around this class's `step`, as it does when the
    first object is made (`Optimizer._patch_step_function`, torch 2.7 to 2.15)."""
    return bool(getattr(getattr(kind, "step", None), "hooked", False))
