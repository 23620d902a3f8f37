"""Settings of a trial, set from outside: options of torch's configuration modules right after each
is imported, arguments of `torch.compile`, its backend and a `FixedShape` around what it gives, a
seed. A program that sets one itself does so later. And changes of arguments before each outermost
call of a compiled function."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from compilediag_harness.base import object_graph
from compilediag_harness.base.post_import import PostImport
from compilediag_harness.blame.guard_sources import parse_path
from compilediag_harness.shapes.dims import ShapeUnusable
from compilediag_harness.shapes.fixed_shape import FixedShape
from compilediag_harness.shapes.padding import REPEAT
from compilediag_harness.torch_internals import torch_api, torch_guards
from compilediag_harness.torch_internals.torch_names import Remover, replace_attribute
from compilediag_harness.torch_internals.torch_open_calls import CallArguments
from compilediag_harness.trials.plan import Notes, is_place_of, list_places, list_wrapped_functions
from compilediag_harness.wire import (
    ArgumentChange,
    Location,
    PaddedFunction,
    SettingChange,
    TrialPlan,
    describe_seed,
)

PASSED = "the program passes it itself"
OVERRIDDEN = "the program sets it itself"
NO_SUCH_OPTION = "this torch has no such option"
IS_METHOD = "it is compiled as a method, which nothing can stand in for but another method"


class PlannedSettings:
    """The options that a plan sets."""

    def __init__(self, changes: Iterable[SettingChange], notes: Notes) -> None:
        self._changes = tuple(changes)
        self._notes = notes
        self._set: list[SettingChange] = []

    def install(self, imports: PostImport) -> None:
        """Set each option when its module is imported."""
        for change in self._changes:
            imports.run_after_import(change.module, functools.partial(self._handle_import, change))

    def _handle_import(self, change: SettingChange, module: Any) -> None:
        with self._notes.record_errors(change.label):
            if not hasattr(module, change.name):
                self._notes.record_change(change.label, NO_SUCH_OPTION)
                return
            setattr(module, change.name, change.value)
            self._set.append(change)
            self._notes.record_change(change.label)

    def finish(self) -> None:
        """Note what is not in force at the end of the process."""
        for change in self._set:
            held: Any = getattr(sys.modules.get(change.module), change.name, None)
            if held != change.value:
                self._notes.record_change(change.label, OVERRIDDEN)


def change_compile(
    torch: Any, plan: TrialPlan, changed_files: Collection[str], notes: Notes
) -> Remover | None:
    """Wrap `torch.compile`, by which `torch.nn.Module.compile` and its use as a decorator go too:
    it gets the options and the backend of the plan, and gives `FixedShape`s for its padded
    functions. Returns what undoes it; None where there is nothing to change."""
    original = torch.compile
    parameters = inspect.signature(original).parameters
    known = [option for option in plan.compile_options if option.name in parameters]
    for option in plan.compile_options:
        if option not in known:
            notes.record_change(option.label, "torch.compile has no such argument in this torch")
    if not known and not plan.padded and plan.backend is None:
        return None

    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:  # noqa: A001 - as torch calls it
        for option in known:
            # As a decorator it comes here twice, the second time with what was added the first.
            given = kwargs.get(option.name)
            if given is None:
                kwargs[option.name] = option.value
            notes.record_change(option.label, None if given in (None, option.value) else PASSED)
        if plan.backend is not None:  # these are the other backend's
            left = {name: its for name, its in kwargs.items() if name not in ("mode", "options")}
            kwargs = {**left, "backend": plan.backend}
        compiled = original(*args, **kwargs)
        function = args[0] if args else kwargs.get("model")
        if function is None or not plan.padded:
            return compiled
        places = [place for place, _ in list_places(list_wrapped_functions(torch, function))]
        for change in plan.padded:
            if any(is_place_of(change.function, place, changed_files) for place in places):
                return _wrap_in_fixed_shape(torch, change, function, compiled, notes)
        return compiled

    # Invariant: right after the import of torch, before anybody can have `compile` by name.
    return replace_attribute(torch, "compile", compile)


def _wrap_in_fixed_shape(
    torch: Any, change: PaddedFunction, function: Any, compiled: Any, notes: Notes
) -> Any:
    # A method is bound already, or about to become one of a class that is being defined.
    owner, _, _ = str(getattr(function, "__qualname__", "")).rpartition(".")
    is_method = inspect.ismethod(function) or (owner and not owner.endswith("<locals>"))
    if is_method and not isinstance(function, torch.nn.Module):
        notes.record_change(change.label, IS_METHOD)
        return compiled
    dims: dict[str, dict[str, int]] = {}
    for index, axis in enumerate(change.axes):
        for dim in axis.dims:
            dims.setdefault(dim.argument, {})[str(index)] = dim.dimension
    buckets = {str(index): list(axis.buckets) for index, axis in enumerate(change.axes)}
    pad = REPEAT if change.pad is None else change.pad
    try:
        shape = FixedShape(compiled, dims, buckets, pad)
    except ShapeUnusable as error:
        notes.record_change(change.label, str(error))
        return compiled
    notes.record_change(change.label)
    return shape


def seed_after_import(seed: int, notes: Notes, imports: PostImport) -> None:
    """Seed the generators that do not need torch, each when its module was imported. A program
    that seeds them itself does so later."""
    imports.run_after_import("random", lambda module: seed_generators(module.seed, seed, notes))
    imports.run_after_import(
        "numpy.random", lambda module: seed_generators(module.seed, seed, notes, 2**32)
    )


def seed_generators(
    set_seed: Callable[[int], object], seed: int, notes: Notes, most: int | None = None
) -> None:
    """Seed generators by the function of their module; `most`: seeds are below it."""
    with notes.record_errors(describe_seed(seed)):
        set_seed(seed if most is None else seed % most)
        notes.record_change(describe_seed(seed))


# --- arguments ------------------------------------------------------------------------------------

_ROOT = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class PlannedArguments:
    """The changes of arguments of a plan."""

    changes: tuple[ArgumentChange, ...]
    changed_files: Collection[str]
    """In these a function may stand at another line than in the plan."""
    notes: Notes

    def change_arguments(
        self, functions: Iterable[tuple[Location, Any]], owner: Any, call: CallArguments
    ) -> None:
        """Change the arguments of a call; `functions`: place and code of it and what it wraps."""
        for change in self.changes:
            for place, code in functions:
                if is_place_of(change.function, place, self.changed_files):
                    with self.notes.record_errors(change.label):
                        problem = self._apply_change(change, code, owner, call)
                        self.notes.record_change(change.label, problem)

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
