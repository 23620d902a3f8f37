"""What is known about optimizers that have not stepped yet: whether one exists at all.

A program that has made an optimizer will step it, so compiled calls before its first step are no
steps: they are the micro-batches of one.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

from compilediag_harness.torch_internals import torch_api


class OptimizerRegistry:
    """The optimizers of this process, looked for when a compiled callable is first called, and when
    one first repeats if there were none."""

    def __init__(self, torch_module: Any) -> None:
        self._torch = torch_module
        self._found: list[weakref.ref[Any]] = []
        self._before: int | None = None
        self._unseen = False
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

    def call_begins(self) -> None:
        """An outermost compiled call begins, while an optimizer is awaited."""
        self._before = self._changes()

    def call_ends(self) -> None:
        """That call ends."""
        self._unseen = self._unseen or self._before not in (None, self._changes())
        self._before = None

    def stepped_unseen(self) -> bool:
        """Whether a compiled call has written an optimizer's parameters: it contained the step, and
        our hooks are not called in compiled code."""
        return self._unseen

    def training(self) -> bool:
        """Whether the autograd engine has run since this was asked last: a micro-batch is over."""
        before, self._engine_runs = self._engine_runs, torch_api.engine_runs()
        return self._engine_runs != before

    def _changes(self) -> int:
        """How often the parameters of the optimizers were written."""
        # Missing before Optimizer.__init__ has run.
        groups = (group for ref in self._found for group in getattr(ref(), "param_groups", ()))
        return torch_api.times_written(one for group in groups for one in group["params"])


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
