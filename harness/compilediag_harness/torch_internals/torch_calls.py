"""Calls of compiled callables, and of functions behind `torch.compiler.disable`, as torch's own
wrappers begin and end them."""

from __future__ import annotations

import functools
import sys
import time
import types
from collections.abc import Callable
from typing import Any

from compilediag_harness.torch_internals import torch_disabling
from compilediag_harness.torch_internals.torch_names import (
    EVAL_FRAME,
    HOOKS,
    Remover,
    available,
    loaded,
)
from compilediag_harness.torch_internals.torch_open_calls import (
    Call,
    every_thread,
    key_of,
    this_thread,
)

_call_listeners: list[tuple[Callable[[int], None], Callable[[int], None] | None]] = []
_disabled_listeners: list[Callable[[Any, float, float], None]] = []
_disabled_begins: list[Callable[[Any], None]] = []

_paused = False
"""Nobody is told of calls, but `_mark` of those that begin."""

_mark: Callable[[int], None] | None = None


def pause_calls(mark: Callable[[int], None] | None = None) -> bool:
    """Tells no listener of calls until `resume_calls`, and takes our functions out of torch: they
    are asked several times a step. `mark(key)`, if given, is still told of each outermost call of
    a compiled callable that begins. False, and nothing is changed, where a call is in progress in
    any thread: nobody would be told of its end."""
    global _paused, _mark
    if any(list(every_thread.values())):
        return False
    _paused, _mark = True, mark
    _put_call_hooks()
    return True


def resume_calls() -> None:
    """Tells the listeners of calls again, of those that begin from now on."""
    global _paused, _mark
    _paused, _mark = False, None
    for calls in list(every_thread.values()):
        calls.clear()  # one that began while calls were being paused
    _put_call_hooks()


def on_outermost_call(
    begin: Callable[[int], None], end: Callable[[int], None] | None = None
) -> Remover:
    """Calls `begin(key)` at the start of each outermost call of a compiled callable, and `end(key)`
    when it returns or raises, from the moment Dynamo is loaded; `key` tells compiled callables
    apart. Returns what stops it."""
    both = (begin, end)
    _call_listeners.append(both)
    watch_compiled_calls()

    def remove() -> None:
        if both in _call_listeners:
            _call_listeners.remove(both)

    return remove


def on_disabled_call(
    ended: Callable[[Any, float, float], None], begins: Callable[[Any], None] | None = None
) -> Remover:
    """Calls `ended(function, began, ended)`, in `time.monotonic()`, after each call of a function
    behind `torch.compiler.disable`, torch's own ones included; on 2.15 only of those that compiled
    code calls. `begins(function)` before it: Dynamo is not asked about frames then any more."""
    _disabled_listeners.append(ended)
    if begins is not None:
        _disabled_begins.append(begins)
    watch_compiled_calls()

    def remove() -> None:
        if ended in _disabled_listeners:
            _disabled_listeners.remove(ended)
        if begins is not None and begins in _disabled_begins:
            _disabled_begins.remove(begins)

    return remove


def watch_compiled_calls() -> bool:
    """Puts the hooks behind `on_outermost_call` and `on_disabled_call` in place; False while they
    cannot be.

    The wrappers of `torch.compile` and of `torch.compiler.disable` ask `_callback_from_stance` once
    per call, after they have taken the previous eval-frame callback into their local `prior`: None
    there means that no compiled call is in progress in this thread. Both then hand the answer to
    `_maybe_set_eval_frame` (but 2.15 does not hand on a None), and `prior` to it when the call has
    ended, in a `finally` block.
    """
    eval_frame = loaded(EVAL_FRAME)
    original = getattr(eval_frame, "_callback_from_stance", None)
    if eval_frame is None or original is None:
        return False
    torch_disabling.look_again()
    if eval_frame is not _hooked_module:
        _make_call_hooks(eval_frame)
        _put_call_hooks()
    return True


_hooked_module: Any = None

_call_hooks: dict[str, tuple[Any, Any]] = {}
"""By name, torch's function and ours, which stands in its place."""


def _make_call_hooks(eval_frame: Any) -> None:
    global _hooked_module
    original = eval_frame._callback_from_stance

    @functools.wraps(original)
    def ask(callback: Any) -> Any:
        if _paused:
            if _mark is not None and callback is not None and callback is not False:
                _marked(callback, sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
        # Several times a step, for functions that torch itself disables: these go straight on.
        elif _disabled_listeners if callback is None else _call_listeners and callback is not False:
            _asked(callback, sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
        return original(callback)

    _hooked_module = eval_frame
    _call_hooks["_callback_from_stance"] = original, ask
    switch = getattr(eval_frame, "_maybe_set_eval_frame", None)
    if switch is not None:

        @functools.wraps(switch)
        def set_callback(callback: Any) -> Any:
            calls = this_thread.open
            if calls:
                caller = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
                if calls[-1].frame is caller or len(calls) > 1:
                    _passed(caller)
            return switch(callback)

        _call_hooks["_maybe_set_eval_frame"] = switch, set_callback


def _put_call_hooks() -> None:
    """Puts the functions in place that are needed now. Somebody else's that came later stay."""
    for name, (original, ours) in _call_hooks.items():
        wanted = not _paused or (_mark is not None and name == "_callback_from_stance")
        if getattr(_hooked_module, name, None) is (original if wanted else ours):
            setattr(_hooked_module, name, ours if wanted else original)


def _marked(callback: Any, caller: types.FrameType) -> None:
    """A wrapper's call begins, of which only the begin is told."""
    in_wrapper = caller.f_code.co_name in ("compile_wrapper", "_fn")
    names = caller.f_locals if in_wrapper else {"prior": callback}
    if _mark is not None and names.get("prior") in (None, False):
        _mark(key_of(names.get("fn")))


def _asked(callback: Any, caller: types.FrameType) -> None:
    """A wrapper's call begins."""
    in_wrapper = caller.f_code.co_name in ("compile_wrapper", "_fn")  # 2.7 calls both _fn
    if callback is None:
        if in_wrapper and _disabled_listeners:
            names = caller.f_locals
            # 2.15 sets no callback at the begin, and at the end only one that is not None.
            sets_once = "callback" in caller.f_code.co_varnames
            if not sets_once or names.get("prior") is not None:
                call = Call(caller, names.get("fn"), 0, time.monotonic(), entered=sets_once)
                this_thread.open.append(call)
                for begins in tuple(_disabled_begins):
                    begins(call.function)
        return
    names = caller.f_locals if in_wrapper else {"prior": callback}
    if names.get("prior") in (None, False):
        function = names.get("fn")
        key = key_of(function)
        call = Call(caller, function, key, 0.0, names=names)
        this_thread.open.append(call)
        for begin, _ in tuple(_call_listeners):
            begin(key)
        call.names = None


def _passed(caller: types.FrameType) -> None:
    """A wrapper sets the eval-frame callback: at the begin of its call, and at its end."""
    calls = this_thread.open
    place = len(calls) - 1
    while place >= 0 and calls[place].frame is not caller:
        place -= 1
    if place < 0:
        return  # a call that was not asked about
    call = calls[place]
    if not call.entered:
        call.entered = True
        return
    del calls[place:]
    if not call.key:
        ended = time.monotonic()
        for listener in tuple(_disabled_listeners):
            listener(call.function, call.began, ended)
    else:
        for _, end in tuple(_call_listeners):
            if end is not None:
                end(call.key)


def frames_are_offered() -> bool:
    """Whether Dynamo is asked about frames of this thread now, in a compiled call or without."""
    ask = getattr(loaded("torch._C._dynamo.eval_frame"), "get_eval_frame_callback", None)
    return ask is not None and loaded(EVAL_FRAME) is not None and ask() is not None


def sees_compiled_calls() -> bool:
    """Whether begin and end of every outermost compiled call are told; also while there is none
    to tell of."""
    wanted = ("compiled_calls", "call_ends")
    return all(available(hook) is not False for hook in HOOKS if hook.name in wanted)
