"""What is done to objects that the program makes: optimizers, and hooks that it registers."""

from __future__ import annotations

import functools
import os
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from compilediag_harness.steps.disabled_calls import code_of
from compilediag_harness.torch_internals.torch_names import Remover, replace_with
from compilediag_harness.trials.plan import Notes
from compilediag_harness.wire import ObjectChange

_REGISTERING = (
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
)


class Objects:
    """The changes of objects of a plan."""

    def __init__(self, changes: Iterable[ObjectChange], torch: Any, notes: Notes) -> None:
        self._torch, self._notes = torch, notes
        chosen = tuple(changes)
        self._hooks = [each for each in chosen if each.action == "disable_hook"]
        self._numbers = [each for each in chosen if each.action == "tensor_hyperparameter"]
        self._made: list[weakref.ref[Any]] = []
        """Optimizers that have not been changed yet."""
        self._undo: list[Remover] = []
        for each in chosen:
            if each not in self._hooks and each not in self._numbers:
                notes.note(each.label, f"{each.action} is not known")
        if self._numbers:
            self._watch_optimizers()
        if self._hooks:
            for name in _REGISTERING:
                self._watch_registering(name)

    def uninstall(self) -> None:
        """Changes no further object."""
        while self._undo:
            self._undo.pop()()

    def compiled_call_begins(self) -> None:
        """Changes the optimizers that were made by now; each once."""
        while self._made:
            optimizer = self._made.pop()()
            if optimizer is not None:
                for change in self._numbers:
                    self._notes_outcome(change, functools.partial(self._as_tensor, optimizer))

    def _watch_optimizers(self) -> None:
        base: Any = self._torch.optim.Optimizer
        original = base.__init__
        made = self._made

        @functools.wraps(original)
        def build(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            made.append(weakref.ref(self))

        self._undo.append(replace_with(base, "__init__", build))

    def _as_tensor(self, optimizer: Any, change: ObjectChange) -> bool:
        held = [group for group in optimizer.param_groups if change.name in group]
        for group in held:
            value = group[change.name]
            if not isinstance(value, self._torch.Tensor):
                group[change.name] = self._torch.tensor(value)
        return bool(held)

    def _watch_registering(self, name: str) -> None:
        module: Any = self._torch.nn.Module
        original = getattr(module, name, None)
        if original is None:
            return
        disabled = self._disabled

        @functools.wraps(original)
        def register(self: Any, hook: Any, *args: Any, **kwargs: Any) -> Any:
            return original(self, disabled(hook), *args, **kwargs)

        self._undo.append(replace_with(module, name, register))

    def _disabled(self, hook: Any) -> Any:
        code = code_of(hook)
        found = [hook]

        def disable(_: ObjectChange) -> bool:
            found[0] = self._torch.compiler.disable(hook)
            return True

        for change in self._hooks:
            if code is not None and _is_of(change, code):
                self._notes_outcome(change, disable)
        return found[0]

    def _notes_outcome(self, change: ObjectChange, act: Callable[[ObjectChange], bool]) -> None:
        try:
            if act(change):
                self._notes.note(change.label)
        except Exception as error:
            self._notes.note(change.label, f"{type(error).__name__}: {error}")


def _is_of(change: ObjectChange, code: types.CodeType) -> bool:
    """Whether the line of the change is one of this function's."""
    place = change.function
    if place is None or code.co_name != change.name:
        return False
    lines = [line for _, _, line in code.co_lines() if line is not None]
    file = os.path.abspath(code.co_filename)
    within = code.co_firstlineno <= place.line <= max(lines, default=code.co_firstlineno)
    return within and file.endswith(f"/{place.file.lstrip('/')}")
