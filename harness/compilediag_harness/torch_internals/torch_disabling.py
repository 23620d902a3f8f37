"""Which functions are put behind `torch.compiler.disable`, by the program or by torch itself."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

from compilediag_harness.base.post_import import is_initialising
from compilediag_harness.torch_internals.dynamo_skip import out_of_tracebacks
from compilediag_harness.torch_internals.torch_names import (
    EVAL_FRAME,
    Remover,
    loaded,
    lookup,
    replace_with,
    subscribe,
)

_GRAPH = "__compiled_fn"
"""The code that Dynamo makes of a frame calls its graph by a global of such a name."""


_listeners: list[Callable[[], None]] = []
_functions_disabled = False
"""A function that is not torch's own was put behind `torch.compiler.disable`."""

_disabled_by_torch: set[Any] = set()
"""Code of functions that are not torch's own and that torch put behind `torch.compiler.disable`:
graphs that a backend of the program's has compiled."""


def on_function_disabled(disabled: Callable[[], None]) -> Remover:
    """Calls `disabled()` whenever a function that is not torch's own is put behind
    `torch.compiler.disable`; at once where one has been, or may have been before we watched."""
    remove = subscribe(_listeners, disabled)
    if _watch_disabling() is False or _functions_disabled:
        disabled()
    return remove


def functions_disabled() -> bool:
    """Whether a function that is not torch's own was seen to be put behind
    `torch.compiler.disable`."""
    return _functions_disabled


def disabled_by_torch(code: Any) -> bool:
    """Whether a function was seen to be put behind `torch.compiler.disable` by torch itself."""
    return code in _disabled_by_torch


def check_again() -> None:
    """Watches Dynamo, which may have been loaded meanwhile, for what is disabled in it."""
    if _listeners:
        _watch_disabling()


def _watch_disabling() -> bool | None:
    """Puts a wrapper on `DisableContext.__call__`, which `torch.compiler.disable` and Dynamo itself
    call with each function. Whether no function can have been disabled before; None while Dynamo is
    not loaded."""
    eval_frame = loaded(EVAL_FRAME)
    if eval_frame is None:
        return None
    context: Any = getattr(eval_frame, "DisableContext", None)
    if context is None:
        return False
    original: Any = context.__call__
    if hasattr(original, "_compilediag"):
        return bool(original._compilediag)

    def disable(self: Any, function: Any) -> Any:
        global _functions_disabled
        # torch disables functions of its own, too; and every graph that it has compiled.
        if not str(getattr(function, "__module__", "")).startswith("torch"):
            if _for_torch(sys._getframe(1)):  # pyright: ignore[reportPrivateUsage]
                _disabled_by_torch.add(getattr(function, "__code__", None))
            else:
                _functions_disabled = True
                for listener in tuple(_listeners):
                    listener()
        return original(self, function)

    # In place before the module's import is over: nothing of the program was disabled before.
    from_start = is_initialising(eval_frame)
    wrapped: Any = functools.wraps(original)(disable)
    wrapped._compilediag = from_start
    context.__call__ = wrapped
    return from_start


_DISABLING = ("torch.compiler", "torch._dynamo.decorators", EVAL_FRAME)


def _for_torch(frame: types.FrameType | None) -> bool:
    """Whether torch itself disables a function: Dynamo does so with every graph it has compiled."""
    while frame is not None and frame.f_globals.get("__name__") in _DISABLING:
        frame = frame.f_back
    module = frame.f_globals.get("__name__", "") if frame is not None else ""
    return str(module).startswith("torch.")


def graph_of(wrapper: types.FrameType, function: Any) -> types.CodeType | None:
    """The compiled code that calls `function` as its graph, through the call `wrapper` of torch's;
    None where it calls something else."""
    caller = wrapper.f_back
    if caller is None:
        return None
    for name in caller.f_code.co_names:
        if name.startswith(_GRAPH):
            graph = caller.f_globals.get(name)
            if getattr(graph, "_torchdynamo_orig_callable", None) is function:
                return caller.f_code
    return None


def stance() -> str | None:
    """The stance in force now."""
    known = lookup(loaded(EVAL_FRAME), "_stance.stance")
    return known if isinstance(known, str) else None


def on_stance_set(callback: Callable[[str, types.FrameType], None]) -> Remover | None:
    """Calls `callback(stance, frame)` after each stance that is set, with the frame that set it: of
    `set_stance` itself."""
    # `set_stance` imports the function by its name: it is replaced there, not where it is defined.
    decorators = loaded("torch._dynamo.decorators")
    original = getattr(decorators, "_set_stance", None)
    if original is None:
        return None

    @functools.wraps(original)
    def set_stance(chosen: Any) -> Any:
        with out_of_tracebacks:
            before = original(chosen)
        callback(str(chosen.stance), sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
        return before

    return replace_with(decorators, "_set_stance", set_stance)
