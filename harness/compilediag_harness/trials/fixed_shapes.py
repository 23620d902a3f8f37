"""`FixedShape`s in a trial: put around compiled functions from outside, and checked for harm by
padding at their first calls, the program's own too."""

from __future__ import annotations

import functools
import inspect
import threading
import time
from collections.abc import Collection, Iterable
from typing import Any

from compilediag_harness.base.session import Session
from compilediag_harness.shapes.dims import ShapeUnusable
from compilediag_harness.shapes.fixed import FixedShape
from compilediag_harness.shapes.padded_calls import Ended, PaddedCalls, call_listeners
from compilediag_harness.shapes.padding import REPEAT
from compilediag_harness.shapes.padding_check import check_padding
from compilediag_harness.shapes.side_effects import modules_of
from compilediag_harness.torch_internals.torch_names import Remover, replace_with, subscribe
from compilediag_harness.trials.outputs import OutputWatcher
from compilediag_harness.trials.plan import Notes, is_place_of, places_of, wrapped_functions
from compilediag_harness.wire import PaddedFunction

IS_METHOD = "it is compiled as a method, which nothing can stand in for but another method"


def wrap(
    torch: Any, changes: Iterable[PaddedFunction], changed_files: Collection[str], notes: Notes
) -> Remover | None:
    """Makes `torch.compile` give `FixedShape`s for the functions of a plan, as a program does that
    wraps what it gave. Returns what undoes it; None where there is nothing to wrap."""
    wanted, original = tuple(changes), torch.compile
    if not wanted:
        return None

    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:  # noqa: A001 - as torch calls it
        compiled = original(*args, **kwargs)
        function = args[0] if args else kwargs.get("model")
        if function is None:  # as a decorator: it comes here again with the function
            return compiled
        places = [place for place, _ in places_of(wrapped_functions(torch, function))]
        for change in wanted:
            if any(is_place_of(change.function, place, changed_files) for place in places):
                return _fixed(torch, change, function, compiled, notes)
        return compiled

    return replace_with(torch, "compile", compile)


def _fixed(torch: Any, change: PaddedFunction, function: Any, compiled: Any, notes: Notes) -> Any:
    # A method is bound already, or about to become one of a class that is being defined.
    owner, _, _ = str(getattr(function, "__qualname__", "")).rpartition(".")
    is_method = inspect.ismethod(function) or (owner and not owner.endswith("<locals>"))
    if is_method and not isinstance(function, torch.nn.Module):
        notes.note(change.label, IS_METHOD)
        return compiled
    dims: dict[str, dict[str, int]] = {}
    for index, axis in enumerate(change.axes):
        for each in axis.dims:
            dims.setdefault(each.argument, {})[str(index)] = each.dimension
    buckets = {str(index): list(axis.buckets) for index, axis in enumerate(change.axes)}
    pad = REPEAT if change.pad is None else change.pad
    try:
        shape = FixedShape(compiled, dims, buckets, pad)
    except ShapeUnusable as error:
        notes.note(change.label, str(error))
        return compiled
    notes.note(change.label)
    return shape


class FixedShapeCalls:
    """Looks at every call of every `FixedShape` of a process."""

    def __init__(self, session: Session, outputs: OutputWatcher, *, check: bool) -> None:
        self._session, self._outputs, self._check = session, outputs, check
        self._checked: set[tuple[Any, ...]] = set()
        self._lock = threading.Lock()
        self.uninstall = subscribe(call_listeners, self._begins)

    def _begins(self, calls: PaddedCalls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ended:
        if self._check:
            with self._outputs.aside():
                self._check_once(calls, args, kwargs)
        return self._outputs.batch_begins(calls.declared.number)

    def _check_once(
        self, calls: PaddedCalls, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Padding may harm in one mode and not in another: batch norm does in training."""
        started = time.monotonic()
        try:
            modules = modules_of(calls.torch, calls.settings.function)
            training = tuple(bool(module.training) for module in modules)
            mode = (calls.declared.number, calls.torch.is_grad_enabled(), training)
            with self._lock:
                if mode in self._checked:
                    return
            if 0 in calls.read(args, kwargs).sizes:
                return  # nothing to pad: the next call shows
            with self._lock:
                self._checked.add(mode)
            check_padding(calls, args, kwargs, gradients=True)
        except ShapeUnusable:
            pass  # the call itself raises it
        except Exception as error:
            self._session.fault("trial: a check of padding", error)
        self._session.charge(time.monotonic() - started)
