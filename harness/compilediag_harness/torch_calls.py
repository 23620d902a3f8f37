"""Calls of compiled callables, and of functions behind `torch.compiler.disable`, as torch's own
wrappers begin and end them."""

from __future__ import annotations

import dataclasses
import functools
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from compilediag_harness.torch_api import never_compile
from compilediag_harness.torch_names import EVAL_FRAME, HOOKS, Remover, available, loaded

_call_listeners: list[tuple[Callable[[int], None], Callable[[int], None] | None]] = []
_disabling_listeners: list[Callable[[], None]] = []
_functions_disabled = False
"""A function that is not torch's own was put behind `torch.compiler.disable`."""

_disabled_listeners: list[Callable[[Any, float, float], None]] = []
_disabled_begins: list[Callable[[Any], None]] = []
_disabled_by_torch: set[Any] = set()
"""Code of functions that are not torch's own and that torch put behind `torch.compiler.disable`:
graphs that a backend of the program's has compiled."""


@dataclasses.dataclass(slots=True)
class _Call:
    """A call of one of torch's two wrappers that is in progress in this thread."""

    frame: types.FrameType
    function: Any
    key: int
    """0 for a function that is not compiled on purpose."""
    began: float
    entered: bool = False
    """The wrapper has put its own eval-frame callback in place."""
    names: dict[str, Any] | None = None
    """The wrapper's local names, while the call begins: they hold the program's tensors."""


class _Open(list[_Call]):
    """Calls in progress in one thread, outermost first."""

    __slots__ = ("__weakref__",)


_every_thread: weakref.WeakValueDictionary[int, _Open] = weakref.WeakValueDictionary()
"""The calls in progress, by thread."""


class _Calls(threading.local):
    """Calls in progress in this thread, outermost first."""

    def __init__(self) -> None:
        self.open = _every_thread[threading.get_ident()] = _Open()


_calls = _Calls()

_paused = False
"""Nobody is told of calls, but `_mark` of those that begin."""

_mark: Callable[[int], None] | None = None


def pause_calls(mark: Callable[[int], None] | None = None) -> bool:
    """Tells no listener of calls until `resume_calls`, and takes our functions out of torch: they
    are asked several times a step. `mark(key)`, if given, is still told of each outermost call of
    a compiled callable that begins. False, and nothing is changed, where a call is in progress in
    any thread: nobody would be told of its end."""
    global _paused, _mark
    if any(list(_every_thread.values())):
        return False
    _paused, _mark = True, mark
    _put_call_hooks()
    return True


def resume_calls() -> None:
    """Tells the listeners of calls again, of those that begin from now on."""
    global _paused, _mark
    _paused, _mark = False, None
    for calls in list(_every_thread.values()):
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


def on_function_disabled(disabled: Callable[[], None]) -> Remover:
    """Calls `disabled()` whenever a function that is not torch's own is put behind
    `torch.compiler.disable`; at once where one has been, or may have been before anybody looked."""
    _disabling_listeners.append(disabled)
    if _watch_disabling() is False or _functions_disabled:
        disabled()

    def remove() -> None:
        if disabled in _disabling_listeners:
            _disabling_listeners.remove(disabled)

    return remove


def functions_disabled() -> bool:
    """Whether a function that is not torch's own was seen to be put behind
    `torch.compiler.disable`."""
    return _functions_disabled


def _watch_disabling() -> bool | None:
    """Whether every function that was ever disabled was seen to be; None while none can be."""
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
        if not str(getattr(function, "__module__", "")).startswith("torch"):
            if _for_torch(sys._getframe(1)):  # pyright: ignore[reportPrivateUsage]
                _disabled_by_torch.add(getattr(function, "__code__", None))
            else:
                _functions_disabled = True
                for listener in tuple(_disabling_listeners):
                    listener()
        return original(self, function)

    # In place before the module's import is over: nothing of the program was disabled before.
    spec = getattr(eval_frame, "__spec__", None)
    from_start = bool(getattr(spec, "_initializing", False))
    never_compile(loaded("torch"), disable.__code__, callees=True)
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
    if _disabling_listeners:
        _watch_disabling()
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
            calls = _calls.open
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
        _mark(_key_of(names.get("fn")))


def _asked(callback: Any, caller: types.FrameType) -> None:
    """A wrapper's call begins."""
    in_wrapper = caller.f_code.co_name in ("compile_wrapper", "_fn")  # 2.7 calls both _fn
    if callback is None:
        if in_wrapper and _disabled_listeners:
            names = caller.f_locals
            # 2.15 sets no callback at the begin, and at the end only one that is not None.
            sets_once = "callback" in caller.f_code.co_varnames
            if not sets_once or names.get("prior") is not None:
                call = _Call(caller, names.get("fn"), 0, time.monotonic(), entered=sets_once)
                _calls.open.append(call)
                for begins in tuple(_disabled_begins):
                    begins(call.function)
        return
    names = caller.f_locals if in_wrapper else {"prior": callback}
    if names.get("prior") in (None, False):
        function = names.get("fn")
        key = _key_of(function)
        call = _Call(caller, function, key, 0.0, names=names)
        _calls.open.append(call)
        for begin, _ in tuple(_call_listeners):
            begin(key)
        call.names = None


def _passed(caller: types.FrameType) -> None:
    """A wrapper sets the eval-frame callback: at the begin of its call, and at its end."""
    calls = _calls.open
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


class CalledFrom(NamedTuple):
    """The outermost compiled call in progress in this thread."""

    function: Any
    inside: str | None
    """Class of the outermost eager module whose call it is a part of; None where there is none."""


def called_from() -> CalledFrom | None:
    """What the newest outermost compiled call of this thread calls, and from where. Walks the
    stack: for the first call of a callable, not for each."""
    calls = _calls.open
    if not calls:
        return None
    call = calls[-1]
    frame, direct, outermost = call.frame.f_back, None, None
    above = True
    while frame is not None:
        if frame.f_code.co_name in ("_call_impl", "_wrapped_call_impl"):
            outermost = frame.f_locals.get("self")
            direct = outermost if above else direct
        else:
            above = False
        frame = frame.f_back
    part = outermost is not None and outermost is not direct
    return CalledFrom(call.function, type(outermost).__name__ if part else None)


def in_compiled_call() -> bool:
    """Whether a call of a compiled callable is in progress in this thread."""
    calls = _calls.open
    return bool(calls) and any(call.key for call in calls)


def disabled_by_torch(code: Any) -> bool:
    """Whether a function was seen to be put behind `torch.compiler.disable` by torch itself."""
    return code in _disabled_by_torch


def disabled_function() -> Any:
    """The function behind `torch.compiler.disable` that this thread is in, with no compiled call in
    progress inside of it; None where there is none. Only while somebody listens to such calls."""
    calls = _calls.open
    return calls[-1].function if calls and not calls[-1].key else None


def frames_are_offered() -> bool:
    """Whether Dynamo is asked about frames of this thread now, in a compiled call or without."""
    ask = getattr(loaded("torch._C._dynamo.eval_frame"), "get_eval_frame_callback", None)
    return ask is not None and loaded(EVAL_FRAME) is not None and ask() is not None


def sees_compiled_calls() -> bool:
    """Whether begin and end of every outermost compiled call are told; also while there is none
    to tell of."""
    wanted = ("compiled_calls", "call_ends")
    return all(available(hook) is not False for hook in HOOKS if hook.name in wanted)


class CalledWith(NamedTuple):
    """What the outermost compiled call that begins in this thread calls, and with what."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def called_with() -> CalledWith | None:
    """For a listener of `on_outermost_call`, while the call begins. Not to be kept: it holds the
    program's tensors."""
    calls = _calls.open
    names = calls[-1].names if calls else None
    if names is None:
        return None
    args, kwargs = names.get("args"), names.get("kwargs")
    if not isinstance(args, tuple) or not isinstance(kwargs, dict):
        return None  # a block, not a call: `with torch._dynamo.optimize(...)`
    return CalledWith(calls[-1].function, args, kwargs)  # pyright: ignore[reportUnknownArgumentType]


def without_torch_function() -> Callable[[], AbstractContextManager[Any]]:
    """Makes blocks in which nobody's `__torch_function__` is asked, neither that of subclasses nor
    of modes. torch must be imported."""
    return getattr(loaded("torch._C"), "DisableTorchFunction", nullcontext)


def _key_of(function: Any) -> int:
    """The module of a bound method, else the code of a function: compiling it again, with another
    backend or after a reset, makes no other callable of it."""
    owner = getattr(function, "__self__", None)
    return id(owner if owner is not None else getattr(function, "__code__", function))
