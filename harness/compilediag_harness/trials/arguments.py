"""Argument changes of a trial, made before each outermost call of a compiled function."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterable
from typing import Any

from compilediag_harness.base import object_graph
from compilediag_harness.blame.guard_sources import parse_path
from compilediag_harness.torch_internals import torch_api, torch_guards
from compilediag_harness.torch_internals.torch_open_calls import CallArguments
from compilediag_harness.trials.plan import Notes, is_place_of
from compilediag_harness.wire import ArgumentChange, Location

_ROOT = re.compile(r"[A-Za-z_]\w*")


class PlannedArguments:
    """The changes of arguments of a plan."""

    def __init__(
        self, changes: Iterable[ArgumentChange], changed_files: Collection[str], notes: Notes
    ) -> None:
        """`changed_files`: in these a function may stand at another line than in the plan."""
        self._changes = tuple(changes)
        self._changed_files = changed_files
        self._notes = notes

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

    def _apply_change(
        self, change: ArgumentChange, code: Any, owner: Any, call: CallArguments
    ) -> str | None:
        """Apply a change; returns why it could not be applied, None when it was."""
        value = _resolve_argument(change.argument, bind_arguments(code, owner, call))
        if value is object_graph.MISSING:
            return f"{change.argument} cannot be found among the arguments"
        if not torch_guards.is_tensor_type(object_graph.get_class(value)):
            return f"{change.argument} is no tensor"
        if change.dimension is None:
            return f"{change.action} needs a dimension"
        return torch_api.mark_dimension(change.action, value, change.dimension)


def bind_arguments(code: Any, owner: Any, call: CallArguments) -> dict[str, Any]:
    """Bind the arguments of a call to the function's parameters: the values by parameter."""
    if code is None:
        return dict(call.kwargs)
    given = call.args if owner is None else (owner, *call.args)
    count = code.co_argcount
    names, rest, keywords = inspect.getargs(code)
    arguments: dict[str, Any] = dict(zip(names[:count], given, strict=False))
    if rest is not None:
        arguments[rest] = given[count:]
    if keywords is not None:
        arguments[keywords] = {k: v for k, v in call.kwargs.items() if k not in names}
    return arguments | {name: value for name, value in call.kwargs.items() if name in names}


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
