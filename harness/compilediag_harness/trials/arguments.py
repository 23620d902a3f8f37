"""Argument changes of a trial, made before each outermost call of a compiled function."""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable, Collection, Iterable
from typing import Any

from compilediag_harness.base import object_graph
from compilediag_harness.blame.guard_sources import parse_path
from compilediag_harness.torch_internals import torch_api, torch_guards, torch_names
from compilediag_harness.torch_internals.torch_open_calls import (
    CallArguments,
    is_in_compiled_call,
    pass_instead,
)
from compilediag_harness.trials.plan import Notes, is_place_of
from compilediag_harness.wire import ArgumentChange, Location

UNWRITTEN = "unwritten"
_DTYPE = re.compile(r"to\(torch\.(\w+)\)")

_NUMBERS: dict[str, tuple[type, ...]] = {"tensor": (int,), "tensor(torch.float32)": (int, float)}
"""Types of numbers of which a tensor is made without loss, by action."""

_FORMATS = {
    "contiguous": "contiguous_format",
    **{f: f for f in ("channels_last", "channels_last_3d")},
}
"""Memory formats by action."""

_ROOT = re.compile(r"[A-Za-z_]\w*")


class _ThisCall(threading.local):
    def __init__(self) -> None:
        self.watched: list[tuple[str, Callable[[], bool]]] = []
        """Changes in the calls in progress, and whether their value was written into."""


class PlannedArguments:
    """The changes of arguments of a plan."""

    def __init__(
        self, changes: Iterable[ArgumentChange], changed_files: Collection[str], notes: Notes
    ) -> None:
        """`changed_files`: in these a function may stand at another line than in the plan."""
        self._changes = tuple(changes)
        self._changed_files = changed_files
        self._notes = notes
        self._this = _ThisCall()

    def change_arguments(
        self, functions: Iterable[tuple[Location, Any]], owner: Any, call: CallArguments
    ) -> None:
        """Change the arguments of a call; `functions`: place and code of it and what it wraps."""
        for change in self._changes:
            for place, code in functions:
                if is_place_of(change.function, place, self._changed_files):
                    with self._notes.record_errors(change.label):
                        problem = self._apply_change(change, code, owner, call)
                        self._notes.record_change(change.label, problem)

    def note_lost_writes(self) -> None:
        """Note, at the end of a call, that it wrote into a copy of an argument: that is lost."""
        if is_in_compiled_call():
            return
        watched, self._this.watched = self._this.watched, []
        for label, is_written in watched:
            if is_written():
                self._notes.record_change(label, "the function writes into it")

    def _apply_change(
        self, change: ArgumentChange, code: Any, owner: Any, call: CallArguments
    ) -> str | None:
        """Apply a change; returns why it could not be applied, None when it was."""
        torch: Any = torch_names.get_imported("torch")
        argument, action = change.argument, change.action
        arguments, places = bind_arguments(code, owner, call)
        value = _resolve_argument(argument, arguments)
        if value is object_graph.MISSING:
            return f"{argument} cannot be found among the arguments"
        if action in _NUMBERS:
            if type(value) not in _NUMBERS[action]:
                return f"{argument} is {type(value).__name__}, not a number"
            replacement = torch.tensor(value, dtype=None if action == "tensor" else torch.float32)
        elif not torch_guards.is_tensor_type(object_graph.get_class(value)):
            return f"{argument} is no tensor"
        elif action == "requires_grad":
            if not value.requires_grad:
                value.requires_grad_()
            return None
        elif action == UNWRITTEN:
            self._watch_writes(change.label, torch, value)
            return None
        elif (replacement := _make_replacement(torch, action, value)) is None:
            if change.dimension is None:
                return f"{action} needs a dimension"
            return torch_api.mark_dimension(action, value, change.dimension)
        elif replacement is value:
            return None
        else:
            self._watch_writes(change.label, torch, replacement)
        if argument not in places:
            return f"{argument} is no argument of its own in this call"
        pass_instead(places[argument], replacement)
        return None

    def _watch_writes(self, label: str, torch: Any, value: Any) -> None:
        # Autograd's version counter rises with every write in place, also through a view.
        if value.is_inference():  # has no version
            # Costs memory as large as the argument, until the call ends.
            before = value.clone()
            self._this.watched.append((label, lambda: not torch.equal(value, before)))
        else:
            version = value._version
            self._this.watched.append((label, lambda: value._version != version))


def _make_replacement(torch: Any, action: str, value: Any) -> Any:
    """Make of a tensor what an action asks for: the tensor itself where it is as wanted; None where
    the action makes nothing."""
    if action in _FORMATS:
        return value.contiguous(memory_format=getattr(torch, _FORMATS[action]))
    dtype = _DTYPE.fullmatch(action)
    if dtype is None:
        return None
    wanted = getattr(torch, dtype[1])
    if not isinstance(wanted, torch.dtype):
        raise TypeError(f"torch.{dtype[1]} is no dtype")
    return value.to(wanted)


def bind_arguments(
    code: Any, owner: Any, call: CallArguments
) -> tuple[dict[str, Any], dict[str, int | str]]:
    """Bind the arguments of a call to the function's parameters. Returns the values by parameter;
    and where each is passed itself, by the name that guards have for it ("x", "args[0]",
    "rest['scale']"): the position without `owner`, or the keyword."""
    if code is None:
        return dict(call.kwargs), {name: name for name in call.kwargs}
    given = call.args if owner is None else (owner, *call.args)
    count, owned = code.co_argcount, len(given) - len(call.args)
    names, rest, keywords = inspect.getargs(code)
    arguments: dict[str, Any] = dict(zip(names[:count], given, strict=False))
    places: dict[str, int | str] = {}
    for at in range(owned, len(given)):
        if at < count:
            places[names[at]] = at - owned
        elif rest is not None:
            places[f"{rest}[{at - count}]"] = at - owned
    if rest is not None:
        arguments[rest] = given[count:]
    if keywords is not None:
        arguments[keywords] = {k: v for k, v in call.kwargs.items() if k not in names}
    for name, value in call.kwargs.items():
        if name in names:
            arguments[name] = value
            places.setdefault(name, name)
        elif keywords is not None:
            places[f"{keywords}['{name}']"] = name
    return arguments, places


def _resolve_argument(argument: str, arguments: dict[str, Any]) -> Any:
    """Resolve a path such as "batch['ids']", without running code; `MISSING` where that fails."""
    # As the guard of a local: so paths of plans and of guards are read by one parser.
    root = _ROOT.match(argument)
    path = parse_path(f"L['{root[0]}']{argument[root.end() :]}") if root else None
    if path is None:
        return object_graph.MISSING
    value = arguments.get(path.root, object_graph.MISSING)
    for hop in path.hops:
        value = object_graph.read(hop, value)
    return value
