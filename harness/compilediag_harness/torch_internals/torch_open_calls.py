"""Calls of compiled and disabled functions in progress, by thread: their origin and arguments."""

from __future__ import annotations

import ctypes
import dataclasses
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from compilediag_harness.base.object_graph import iterate_frames
from compilediag_harness.torch_internals.torch_names import get_imported, lookup


@dataclasses.dataclass(slots=True)
class OpenCall:
    """A call of one of torch's two wrappers that is in progress in this thread."""

    frame: types.FrameType
    function: Any
    key: int
    """0 for a function that is not compiled on purpose."""
    began: float
    has_own_callback: bool = False
    """The wrapper has put its own eval-frame callback in place."""
    names: dict[str, Any] | None = None
    """The wrapper's local names, while the call begins: they hold the program's tensors."""


class OpenCalls(list[OpenCall]):
    """Calls in progress in one thread, outermost first."""

    __slots__ = ("__weakref__",)


# Weak: `threading.local` alone holds the list of a thread, so it goes when the thread does; an
# identity that is used again gets a list of its own.
every_thread: weakref.WeakValueDictionary[int, OpenCalls] = weakref.WeakValueDictionary()
"""The calls in progress, by thread."""


class _ThisThread(threading.local):
    def __init__(self) -> None:
        self.open = every_thread[threading.get_ident()] = OpenCalls()


this_thread = _ThisThread()


def find_callable(function: Any) -> Any:
    """Find the module of a bound method, else the code of a function: compiling it again, with
    another backend or after a reset, makes no other callable of it."""
    # The wrapper that a decorator makes has the same code for whatever it is put on:
    # `torch.no_grad()`, and torch's own around a module of a library.
    # Invariant: nothing is made here, since callers go by the address of what is returned.
    while isinstance(function, types.FunctionType) and "__wrapped__" in vars(function):
        function = vars(function)["__wrapped__"]
    owner = getattr(function, "__self__", None)
    return owner if owner is not None else getattr(function, "__code__", function)


def is_in_compiled_call() -> bool:
    """True if a call of a compiled callable is in progress in this thread."""
    return any(call.key for call in this_thread.open)


def is_inside_another() -> bool:
    """True if the newest call of this thread is inside of one of a compiled callable: in a function
    that is not compiled on purpose."""
    return any(call.key for call in this_thread.open[:-1])


def find_stepping_optimizer() -> Any:
    """Find the optimizer in whose `step` this thread is, the outermost; None where it is in none.
    Of any class, as long as it has `param_groups` or a list of parameters. Walks the stack."""
    optimizer = None
    parameter: Any = lookup(get_imported("torch"), "nn.Parameter")
    for frame in iterate_frames(sys._getframe(1)):  # pyright: ignore[reportPrivateUsage]
        code = frame.f_code
        if code.co_name == "step" and code.co_argcount:
            owner = frame.f_locals.get(code.co_varnames[0])
            members: dict[str, Any] = getattr(owner, "__dict__", {})
            lists = [values for values in members.values() if type(values) in (list, tuple)]
            if (
                "param_groups" in members
                or hasattr(cast(Any, type(owner)), "param_groups")
                or any(isinstance(member, parameter) for values in lists for member in values[:1])
            ):
                optimizer = owner
    return optimizer


def get_disabled_function() -> Any:
    """Get the function behind `torch.compiler.disable` that this thread is in, with no compiled
    call in progress inside it, or None. Known only while `watch_disabled_calls` has a listener."""
    calls = this_thread.open
    return calls[-1].function if calls and not calls[-1].key else None


class CallArguments(NamedTuple):
    """Function and arguments of the outermost compiled call that begins in this thread."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def get_call_arguments() -> CallArguments | None:
    """Get function and arguments of the call that begins, for a listener of
    `watch_outermost_calls`, or None. Not to be stored: it holds the program's tensors."""
    calls = this_thread.open
    names = calls[-1].names if calls else None
    if names is None:
        return None
    args, kwargs = names.get("args"), names.get("kwargs")
    if not isinstance(args, tuple) or not isinstance(kwargs, dict):
        return None  # a block, not a call: `with torch._dynamo.optimize(...)`
    return CallArguments(calls[-1].function, args, kwargs)  # pyright: ignore[reportUnknownArgumentType]


def pass_instead(where: int | str, value: Any) -> None:
    """Pass another value in the outermost compiled call that begins in this thread: by position, or
    by keyword. For a listener, while the call begins.

    Raises:
        RuntimeError: no call begins.
    """
    calls = this_thread.open
    call = calls[-1] if calls else None
    if call is None or call.names is None:
        raise RuntimeError("no call begins")
    names = call.names
    if isinstance(where, str):
        names["kwargs"][where] = value  # the wrapper's own dict, made for this call
        return
    args = names["args"]
    names["args"] = (*args[:where], value, *args[where + 1 :])
    if sys.version_info < (3, 13):  # from then on these are the frame's variables themselves
        api = ctypes.pythonapi
        api.PyFrame_LocalsToFast(ctypes.py_object(call.frame), ctypes.c_int(0))


RESULT = "result"
"""The local in which the wrapper of torch 2.13 and later keeps what it returns."""


class ReturningCall:
    """The result of the outermost compiled call that begins in this thread, read at its end."""

    def __init__(self) -> None:
        # The frame holds the arguments of the call: to be dropped when it was read.
        self._frame = this_thread.open[-1].frame
        # What the caller may be handling already: another one at the end is the call's own.
        self._error = sys.exc_info()[1]

    def find_error(self) -> BaseException | None:
        """Find what the call raised, at its end; None where it did not."""
        error = sys.exc_info()[1]
        return None if error is self._error else error

    def read(self, callback: Callable[[Any], None]) -> bool:
        """Call `callback(result)` now or when the wrapper returns. For a listener of the end of
        the call. False where the call raised, or what it returns cannot be seen."""
        frame = self._frame
        caller: types.FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        while caller is not None and caller is not frame and caller.f_code is not frame.f_code:
            caller = caller.f_back
        # The wrapper must be the innermost one.
        if caller is not frame or sys.exc_info()[1] is not self._error:
            return False
        if RESULT in frame.f_code.co_varnames:
            names = frame.f_locals
            if RESULT not in names:
                return False
            callback(names[RESULT])
            return True
        if sys.getprofile() is not None:
            return False
        outside = frame.f_back

        # A function that is there for the wrapper's last instructions alone: a value that is about
        # to be returned can be seen in no other way.
        def catch_return(where: types.FrameType, event: str, value: Any) -> None:
            if event == "return" and where in (frame, outside):
                sys.setprofile(None)
                if where is frame:
                    callback(value)

        sys.setprofile(catch_return)
        return True


def is_outermost() -> bool:
    """True if the compiled call that begins in this thread is inside no other: under a stance that
    compiles nothing, calls that a compiled function makes begin as those from eager code do."""
    return sum(call.key != 0 for call in this_thread.open) == 1
