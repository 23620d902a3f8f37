"""What is known about optimizers that have not stepped yet: whether one exists at all.

A program that has made an optimizer will step it, so compiled calls before its first step are no
steps: they are the micro-batches of one.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any


class OptimizerRegistry:
    """The optimizers of this process, looked for once: when a compiled call first repeats."""

    def __init__(self, torch_module: Any) -> None:
        self._torch = torch_module
        self._found: list[tuple[weakref.ref[Any], int]] = []

    def expected(self) -> bool:
        """Whether an optimizer is alive. Walks the collector's objects, which takes tens of
        milliseconds, but not where no optimizer was ever made."""
        base: type = self._torch.optim.Optimizer
        kinds = _subclasses(base)
        if hasattr(base, "profile_hook_step") and not any(_was_made(kind) for kind in kinds):
            return False
        # type(x) and not isinstance(x): the latter reads lazy proxies' `__class__`, which
        # runs the user's code.
        self._found = [
            (weakref.ref(one), self._states(one)) for one in gc.get_objects() if type(one) in kinds
        ]
        return bool(self._found)

    def stepped_unseen(self) -> bool:
        """Whether an optimizer has gained state since, without our hooks being called: a
        compiled `step` runs none of them."""
        return any(
            (one := ref()) is not None and self._states(one) > before for ref, before in self._found
        )

    def training(self) -> bool:
        """Whether gradients are being recorded in this thread."""
        return bool(self._torch.is_grad_enabled())

    @staticmethod
    def _states(optimizer: Any) -> int:
        state = getattr(optimizer, "state", None)  # missing before Optimizer.__init__ has run
        return len(state) if isinstance(state, dict) else 0  # pyright: ignore[reportUnknownArgumentType]


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
