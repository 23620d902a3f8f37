"""What the modules and optimizers that compiled functions reach hold: parameters, buffers, numbers.

They are followed by weak references: a program that drops its model drops it as in a plain run.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from compilediag_harness.base.object_graph import attributes_of, class_of
from compilediag_harness.steps.step_detection import reached
from compilediag_harness.torch_internals.torch_open_calls import CalledWith
from compilediag_harness.trials.answers import AnswerReader, leaves
from compilediag_harness.wire import Answer, Location, StateRead

MAX_OBJECTS = 64
"""Objects of one function that are distinguished."""

MAX_ANSWERS = 4096
IN_RECORD = 512
"""Answers of one record, which stays far below the longest line of a journal."""

MAX_VALUES = 16
MAX_MODULES = 4096
MAX_ITEMS = 64
AT_CALL_BYTES = 1 << 20
"""Of tensors that are read after a call, which other calls come after."""

AT_END_BYTES = 512 << 20

_ADDED = ("_compiled_call_impl", "_is_torch_compile")
"""What torch puts into modules that it compiles."""

_PLAIN = (bool, int, float, str, type(None))


class States:
    """The objects that the calls of one compiled function came to."""

    def __init__(self, function: Location, torch_module: Any, reader: AnswerReader) -> None:
        self._function = function
        self._reader = reader
        self._module_type: type = torch_module.nn.Module
        self._optimizer_type: type = torch_module.optim.Optimizer
        self._own_names = {*attributes_of(torch_module.nn.Module()), *_ADDED}
        self._objects: list[weakref.ref[Any]] = []
        self._known: dict[int, weakref.ref[Any]] = {}

    def follow(self, owner: Any, code: Any, call: CalledWith) -> None:
        """Remembers the objects that a call reaches."""
        if owner is not None:
            self._add(owner)
            return
        modules: Iterable[Any] = (*call.args, *call.kwargs.values())
        if code is not None:
            modules = (*modules, *reached(call.function, code))
        for value in modules:
            if issubclass(class_of(value), (self._module_type, self._optimizer_type)):
                self._add(value)

    def _add(self, value: Any) -> None:
        known = self._known.get(id(value))
        if known is not None and known() is value:
            return
        if len(self._objects) < MAX_OBJECTS:
            try:
                reference = weakref.ref(value)
            except TypeError:
                return
            self._known[id(value)] = reference
            self._objects.append(reference)

    def read(self, now: float, call: int | None) -> list[StateRead]:
        """What those hold now that are still there."""
        found: list[StateRead] = []
        for index, reference in enumerate(self._objects):
            value = reference()
            if value is None:
                continue
            answers, complete = self._read(value, AT_END_BYTES if call is None else AT_CALL_BYTES)
            name = class_of(value).__name__
            for start in range(0, max(len(answers), 1), IN_RECORD):
                part = answers[start : start + IN_RECORD]
                found.append(StateRead(now, self._function, name, part, complete, index, call))
        return found

    def _read(self, value: Any, budget: int) -> tuple[tuple[Answer, ...], bool]:
        found: list[Answer] = []
        complete = True
        for path, held in self._held(value):
            if len(found) == MAX_ANSWERS:
                return tuple(found), False
            size = _bytes_of(held)
            if size > budget:
                complete = False
                continue
            budget -= size
            answer, whole = self._reader.leaf(path, held, MAX_VALUES)
            found.append(answer)
            complete = complete and whole
        return tuple(found), complete

    def _held(self, value: Any) -> Iterator[tuple[str, Any]]:
        """Attributes by path: of the object, of the modules in it and of theirs."""
        seen: set[int] = set()
        waiting = [("", value)]
        while waiting and len(seen) < MAX_MODULES:
            path, owner = waiting.pop(0)
            if id(owner) in seen:
                continue
            seen.add(id(owner))
            names = dict(attributes_of(owner))
            if issubclass(class_of(owner), self._optimizer_type):
                yield from _stepped(path, names)
            for table in ("_parameters", "_buffers"):
                for name, tensor in dict(names.get(table) or {}).items():
                    if tensor is not None:
                        yield f"{path}.{name}", tensor
            for name, held in names.items():
                if name in self._own_names or type(name) is not str:
                    continue
                if issubclass(class_of(held), self._module_type):
                    waiting.append((f"{path}.{name}", held))
                elif _is_plain(held):
                    yield from leaves(f"{path}.{name}", held)
            modules = dict(names.get("_modules") or {}).items()
            waiting.extend((f"{path}.{name}", held) for name, held in modules if held is not None)


def _stepped(path: str, names: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What an optimizer writes: the parameters, and what it holds of each. Its hyperparameters may
    be tensors or numbers."""
    state: Any = names.get("state")
    groups: Any = names.get("param_groups")
    if not issubclass(class_of(state), dict) or class_of(groups) is not list:
        return
    for group, held in enumerate(groups):
        for place, parameter in enumerate(held["params"]):
            where = f"{path}.param_groups[{group}]['params'][{place}]"
            yield where, parameter
            written: dict[str, Any] = state.get(parameter) or {}
            for name, value in written.items():
                if hasattr(value, "numel"):
                    yield f"{where} {name}", value


def _is_plain(value: Any) -> bool:
    """A number, a flag, a short text, or a list of some."""
    kind = class_of(value)
    if kind in _PLAIN:
        return kind is not str or len(value) <= 256
    if kind is list or kind is tuple:
        return len(value) <= MAX_ITEMS and all(class_of(item) in _PLAIN for item in value)
    return False


def _bytes_of(value: Any) -> int:
    try:
        return int(value.numel()) * int(value.element_size())
    except AttributeError:
        return 0
