"""What is done to an argument before each outermost call of a compiled function."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from compilediag_harness.base import object_graph
from compilediag_harness.blame.guard_sources import path_of
from compilediag_harness.torch_internals import torch_api, torch_guards, torch_names
from compilediag_harness.torch_internals.torch_open_calls import (
    CalledWith,
    in_compiled_call,
    pass_instead,
)
from compilediag_harness.trials.plan import Notes, is_place_of
from compilediag_harness.wire import ArgumentChange, Location

UNWRITTEN = "unwritten"
_DTYPE = re.compile(r"to\(torch\.(\w+)\)")

_NUMBERS: dict[str, tuple[type, ...]] = {"tensor": (int,), "tensor(torch.float64)": (int, float)}
"""Which numbers a tensor is made of without loss."""


_ROOT = re.compile(r"[A-Za-z_]\w*")

_ELEMENT = re.compile(r"([A-Za-z_]\w*)\[(?:(\d+)|'(\w+)')\]")
""""args[0]", "rest['scale']"."""

_VARIADIC, _KEYWORDS = 0x04, 0x08
"""Flags of code with `*args` and with `**kwargs` (`inspect.CO_VARARGS`, `CO_VARKEYWORDS`)."""


class Arguments:
    """The changes of arguments of a plan."""

    def __init__(
        self, changes: Iterable[ArgumentChange], changed_files: Collection[str], notes: Notes
    ) -> None:
        """`changed_files`: in these a function may stand at another line than in the plan."""
        self._changes = tuple(changes)
        self._changed_files = changed_files
        self._notes = notes
        self._passed = PassedValues()

    def change(
        self, functions: Iterable[tuple[Location, Any]], owner: Any, call: CalledWith
    ) -> None:
        """Changes the arguments of a call of functions, each in the former, by place and code."""
        for change in self._changes:
            for place, code in functions:
                if is_place_of(change.function, place, self._changed_files):
                    self._notes.note(change.label, self._acted(change, code, owner, call))

    def ended(self) -> None:
        """The call has ended: what it wrote into a copy of an argument is lost."""
        for label in self._passed.written():
            self._notes.note(label, "the function writes into it")

    def _acted(self, change: ArgumentChange, code: Any, owner: Any, call: CalledWith) -> str | None:
        """Why it was not done; None when it was."""
        try:
            value = _value_of(change.argument, arguments_of(code, owner, call))
            if value is object_graph.MISSING:
                return f"{change.argument} cannot be found among the arguments"
            if is_known(change.action):
                where = place_of(change.argument, code, owner, call)
                return self._passed.replace(change, value, where)
            return _act(change, value)
        except Exception as error:
            return f"{type(error).__name__}: {error}"


def _act(change: ArgumentChange, value: Any) -> str | None:
    if not torch_guards.is_tensor(value):
        return f"{change.argument} is no tensor"
    if change.action == "requires_grad":
        if not value.requires_grad:
            value.requires_grad_()
        return None
    if change.dimension is None:
        return f"{change.action} needs a dimension"
    return torch_api.mark_dimension(change.action, value, change.dimension)


def arguments_of(code: Any, owner: Any, call: CalledWith) -> dict[str, Any]:
    """The arguments of a call by the names that the function's parameters have."""
    if code is None:
        return dict(call.kwargs)
    given = call.args if owner is None else (owner, *call.args)
    names, flags = code.co_varnames, code.co_flags
    found: dict[str, Any] = dict(zip(names[: code.co_argcount], given, strict=False))
    named = code.co_argcount + code.co_kwonlyargcount
    rest = names[named:]
    found.update({name: value for name, value in call.kwargs.items() if name in names[:named]})
    if flags & _VARIADIC:
        found[rest[0]] = given[code.co_argcount :]
        rest = rest[1:]
    if flags & _KEYWORDS:
        found[rest[0]] = {k: v for k, v in call.kwargs.items() if k not in names[:named]}
    return found


def place_of(argument: str, code: Any, owner: Any, call: CalledWith) -> int | str | None:
    """Where a call passes an argument itself: the position, or the keyword; None where it passes
    it as a part of another, or not at all."""
    if code is None:
        return argument if argument in call.kwargs else None
    names, flags, own = code.co_varnames, code.co_flags, owner is not None
    named = code.co_argcount + code.co_kwonlyargcount
    if argument in names[: code.co_argcount]:
        position = names.index(argument) - own
        if 0 <= position < len(call.args):
            return position
    if argument in names[:named] and argument in call.kwargs:
        return argument
    element = _ELEMENT.fullmatch(argument)
    if element is None or not flags & (_VARIADIC | _KEYWORDS):
        return None
    if flags & _VARIADIC and element[2] and names[named] == element[1]:
        position = code.co_argcount - own + int(element[2])
        return position if position < len(call.args) else None
    keywords = names[named + bool(flags & _VARIADIC)] if flags & _KEYWORDS else None
    passed = element[1] == keywords and element[3] in call.kwargs
    return element[3] if passed and element[3] not in names[:named] else None


def _value_of(argument: str, arguments: dict[str, Any]) -> Any:
    """What a path such as "batch['ids']" leads to, without running code of the program."""
    root = _ROOT.match(argument)
    path = path_of(f"L['{root[0]}']{argument[root.end() :]}") if root else None
    if path is None:
        return object_graph.MISSING
    value = arguments.get(path.root, object_graph.MISSING)
    for hop in path.hops:
        value = object_graph.read(hop, value)
    return value


def _with_format(name: str) -> Callable[[Any, Any], Any]:
    return lambda torch, value: value.contiguous(memory_format=getattr(torch, name))


_COPIES: dict[str, Callable[[Any, Any], Any]] = {
    "contiguous": lambda _, value: value.contiguous(),
    "channels_last": _with_format("channels_last"),
    "channels_last_3d": _with_format("channels_last_3d"),
}
"""From torch and the tensor; the tensor itself where it is as wanted."""


def is_known(action: str) -> bool:
    """Whether an action passes another value, or looks whether one is written into."""
    return action in (UNWRITTEN, *_NUMBERS, *_COPIES) or _DTYPE.fullmatch(action) is not None


class _ThisCall(threading.local):
    def __init__(self) -> None:
        self.watched: list[tuple[str, Any, Callable[[Any], bool]]] = []


class PassedValues:
    """The values that are passed in calls in progress."""

    def __init__(self) -> None:
        self._this = _ThisCall()

    def replace(self, change: ArgumentChange, value: Any, where: int | str | None) -> str | None:
        """Passes another value in the outermost call that begins; why it cannot be."""
        torch: Any = torch_names.loaded("torch")
        if change.action in _NUMBERS:
            if type(value) not in _NUMBERS[change.action]:
                return f"{change.argument} is {type(value).__name__}, not a number"
            dtype = None if change.action == "tensor" else torch.float64
            return _pass(change, torch.tensor(value, dtype=dtype), where)
        if not torch_guards.is_tensor(value):
            return f"{change.argument} is no tensor"
        if change.action == UNWRITTEN:
            self._watch(change.label, torch, value)
            return None
        other = _other(torch, change.action, value)
        if other is value:
            return None
        self._watch(change.label, torch, other)
        return _pass(change, other, where)

    def _watch(self, label: str, torch: Any, value: Any) -> None:
        if value.is_inference():  # has no version
            before = value.clone()
            self._this.watched.append((label, value, lambda now: not torch.equal(now, before)))
        else:
            version = value._version
            self._this.watched.append((label, value, lambda now: now._version != version))

    def written(self) -> Iterator[str]:
        """The labels of changes whose value was written into, when an outermost call has ended."""
        if in_compiled_call():
            return
        watched, self._this.watched = self._this.watched, []
        for label, value, is_written in watched:
            if is_written(value):
                yield label


def _other(torch: Any, action: str, value: Any) -> Any:
    dtype = _DTYPE.fullmatch(action)
    if dtype is None:
        return _COPIES[action](torch, value)
    wanted = getattr(torch, dtype[1])
    if not isinstance(wanted, torch.dtype):
        raise TypeError(f"torch.{dtype[1]} is no dtype")
    return value.to(wanted)


def _pass(change: ArgumentChange, value: Any, where: int | str | None) -> str | None:
    if where is None:
        return f"{change.argument} is no argument of its own in this call"
    pass_instead(where, value)
    return None
