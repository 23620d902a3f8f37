"""Calls of compiled callables and of functions behind `torch.compiler.disable`, reported by torch's
own wrappers; and which functions are put behind it, by the program or by torch."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
import types
from collections.abc import Callable
from typing import Any

from compilediag_harness.base.object_graph import iterate_frames
from compilediag_harness.base.post_import import is_initialising
from compilediag_harness.torch_internals.torch_names import (
    EVAL_FRAME,
    HOOKS,
    Remover,
    call_beside,
    get_imported,
    is_available,
    lookup,
    subscribe,
)
from compilediag_harness.torch_internals.torch_open_calls import (
    OpenCall,
    every_thread,
    find_callable,
    this_thread,
)

_call_listeners: list[tuple[Callable[[int], None], Callable[[int], None] | None]] = []
_disabled_listeners: list[
    tuple[Callable[[Any, float, float], None] | None, Callable[[Any], None] | None]
] = []

_every_call_listeners: list[object] = []
"""Listeners that need every call: calls are not paused while there are any."""

_paused = False
"""No listener is called, but `_mark` at calls that begin."""

_mark: Callable[[int], None] | None = None


def pause_calls(mark: Callable[[int], None] | None = None) -> bool:
    """Call no listener until `resume_calls`, and take our functions out of torch: they run
    several times a step. `mark(key)`, if given, is still called at each outermost call of
    a compiled callable that begins. False, and nothing is changed, where a call is in progress in
    any thread, whose end would not be reported, or a listener needs every call."""
    global _paused, _mark
    if _every_call_listeners or any(list(every_thread.values())):
        return False
    _paused, _mark = True, mark
    _put_call_hooks()
    return True


def resume_calls() -> None:
    """Call the listeners again, for calls that begin from now on."""
    global _paused, _mark
    # Invariant: emptied before the hooks are back: the end of what is in these lists was not seen.
    _paused, _mark = False, None
    for calls in list(every_thread.values()):
        calls.clear()  # one that began while calls were being paused
    _put_call_hooks()


def watch_outermost_calls(
    begin: Callable[[int], None], end: Callable[[int], None] | None = None
) -> Remover:
    """Call `begin(key)` at the start of each outermost call of a compiled callable, and `end(key)`
    when it returns or raises, from the moment Dynamo is loaded; `key` distinguishes compiled
    callables. Returns what stops it."""
    watch_compiled_calls()
    return subscribe(_call_listeners, (begin, end))


def watch_every_call(begin: Callable[[int], None], end: Callable[[int], None]) -> Remover:
    """Like `watch_outermost_calls`, for a listener that must not miss a call: none is paused."""
    undo = contextlib.ExitStack()
    undo.callback(subscribe(_every_call_listeners, (begin, end)))
    undo.callback(watch_outermost_calls(begin, end))
    return undo.close


def watch_disabled_calls(
    ended: Callable[[Any, float, float], None] | None, begins: Callable[[Any], None] | None = None
) -> Remover:
    """Call `ended(function, began, ended)`, in `time.monotonic()` seconds, after each call of a
    function behind `torch.compiler.disable`, torch's own ones included; on 2.15 only of those that
    compiled code calls. `begins(function)` before it: no more frames are offered to Dynamo then."""
    watch_compiled_calls()
    return subscribe(_disabled_listeners, (ended, begins))


def watch_compiled_calls() -> bool:
    """Put the hooks behind `watch_outermost_calls` and `watch_disabled_calls` in place; False while
    they cannot be.

    The wrappers of `torch.compile` and `torch.compiler.disable` call `_callback_from_stance` once
    per call, after they have taken the previous eval-frame callback into their local `prior`: None
    there means that no compiled call is in progress in this thread. Both then hand its result to
    `_maybe_set_eval_frame` (but 2.15 does not hand on a None), and `prior` to it when the call has
    ended, in a `finally` block.
    """
    eval_frame = get_imported(EVAL_FRAME)
    original = getattr(eval_frame, "_callback_from_stance", None)
    if eval_frame is None or original is None:
        return False
    if _disabling_listeners:  # Dynamo may have been loaded meanwhile
        _watch_disabling()
    if eval_frame is not _hooked_module:
        _make_call_hooks(eval_frame)
        _put_call_hooks()
    return True


_WRAPPERS = ("compile_wrapper", "_fn")
"""Names of torch's wrapper functions; 2.7 calls that of `torch.compile` _fn, too. Their locals are
`fn`, `prior`, `args` and `kwargs`."""

_get_frame = sys._getframe  # pyright: ignore[reportPrivateUsage]

_hooked_module: Any = None

_call_hooks: dict[str, tuple[Any, Any]] = {}
"""By name, torch's function and ours, which stands in its place."""


def _make_call_hooks(eval_frame: Any) -> None:
    global _hooked_module
    original = eval_frame._callback_from_stance

    # Invariant: called by torch's wrapper directly (its locals are read one frame up).
    @functools.wraps(original)
    def report_call_begin(callback: Any) -> Any:
        # None: a function behind `disable`, several times a step those of torch itself, so these go
        # straight on; False: Dynamo is not to run at all (stance "force_eager").
        try:
            if callback is None:
                if _disabled_listeners and not _paused:
                    _begin_disabled_call(_get_frame(1))
            elif callback is not False and (_mark if _paused else _call_listeners):
                _begin_call(callback, _get_frame(1))
            return original(callback)
        except BaseException:  # of torch's for a stance; of ours `SystemExit` after the last step
            _end_unbegun_call(_get_frame(1))
            raise

    _hooked_module = eval_frame
    _call_hooks["_callback_from_stance"] = original, report_call_begin
    switch = getattr(eval_frame, "_maybe_set_eval_frame", None)
    if switch is not None:

        @functools.wraps(switch)
        def set_callback(callback: Any) -> Any:
            # Invariant: cheap, for torch calls this twice in each call of either wrapper.
            calls = this_thread.open
            if calls:
                caller = _get_frame(1)
                if calls[-1].frame is caller or len(calls) > 1:
                    _handle_callback_set(caller)
            return switch(callback)

        _call_hooks["_maybe_set_eval_frame"] = switch, set_callback


def _put_call_hooks() -> None:
    """Put the functions in place that are needed now. Somebody else's that came later stay."""
    for name, (original, ours) in _call_hooks.items():
        needed = not _paused or (_mark is not None and name == "_callback_from_stance")
        if getattr(_hooked_module, name, None) is (original if needed else ours):
            setattr(_hooked_module, name, ours if needed else original)


def _begin_call(callback: Any, caller: types.FrameType) -> None:
    in_wrapper = caller.f_code.co_name in _WRAPPERS
    names = caller.f_locals if in_wrapper else {"prior": callback}
    if names.get("prior") in (None, False):
        function = names.get("fn")
        key = id(find_callable(function))  # what distinguishes compiled callables: an address
        if _paused:
            if _mark is not None:
                _mark(key)
            return
        call = OpenCall(caller, function, key, 0.0, names=names)
        this_thread.open.append(call)
        for begin, _ in tuple(_call_listeners):
            begin(key)
        call.names = None  # they hold the program's tensors


def _begin_disabled_call(caller: types.FrameType) -> None:
    if caller.f_code.co_name not in _WRAPPERS:
        return
    names = caller.f_locals
    # 2.15 sets no callback at the begin, and at the end only one that is not None.
    sets_once = "callback" in caller.f_code.co_varnames
    if not sets_once or names.get("prior") is not None:
        call = OpenCall(caller, names.get("fn"), 0, time.monotonic(), has_own_callback=sets_once)
        this_thread.open.append(call)
        for _, begins in tuple(_disabled_listeners):
            if begins is not None:
                begins(call.function)


def _end_unbegun_call(caller: types.FrameType) -> None:
    """End a call that raised before its wrapper set a callback, which would have ended it."""
    calls = this_thread.open
    if calls and calls[-1].frame is caller:
        calls[-1].has_own_callback = True
        _handle_callback_set(caller)


def _handle_callback_set(caller: types.FrameType) -> None:
    """Handle that a wrapper sets the eval-frame callback: at the begin and the end of its call."""
    # Invariant: a call whose end was not reported leaves with the one around it (`del` below).
    calls = this_thread.open
    index = len(calls) - 1
    while index >= 0 and calls[index].frame is not caller:
        index -= 1
    if index < 0:
        return  # the begin of this call was not reported
    call = calls[index]
    if not call.has_own_callback:
        call.has_own_callback = True
        return
    del calls[index:]
    if call.key:
        # A copy, since a listener may remove itself (`WarmCalls` does).
        for _, end in tuple(_call_listeners):
            if end is not None:
                end(call.key)
        return
    at = time.monotonic()
    for ended, _ in tuple(_disabled_listeners):
        if ended is not None:
            ended(call.function, call.began, at)


def are_frames_offered() -> bool:
    """True if Dynamo would be offered frames of this thread now, in a compiled call or without."""
    callback = getattr(get_imported("torch._C._dynamo.eval_frame"), "get_eval_frame_callback", None)
    return callback is not None and get_imported(EVAL_FRAME) is not None and callback() is not None


def can_see_compiled_calls() -> bool:
    """True if begin and end of every outermost compiled call can be reported."""
    needed = ("compiled_calls", "call_ends")
    return all(is_available(hook) is not False for hook in HOOKS if hook.name in needed)


# --- what is put behind `torch.compiler.disable` ------------------------------------------------

_GRAPH = "__compiled_fn"
"""The code that Dynamo makes of a frame calls its graph by a global of such a name."""


_disabling_listeners: list[Callable[[], None]] = []
_functions_disabled = False
"""A function that is not torch's own was put behind `torch.compiler.disable`."""

_disabled_by_torch: set[Any] = set()
"""Code of functions that are not torch's own and that torch put behind `torch.compiler.disable`:
graphs that a backend of the program's has compiled."""


def watch_disabled_functions(disabled: Callable[[], None]) -> Remover:
    """Call `disabled()` whenever a function that is not torch's own is put behind
    `torch.compiler.disable`; at once where one has been, or may have been before we watched."""
    remove = subscribe(_disabling_listeners, disabled)
    if _watch_disabling() is False or _functions_disabled:
        disabled()
    return remove


def has_disabled_functions() -> bool:
    """True if a function that is not torch's own was seen to be put behind
    `torch.compiler.disable`."""
    return _functions_disabled


def is_disabled_by_torch(code: Any) -> bool:
    """True if a function was seen to be put behind `torch.compiler.disable` by torch itself."""
    return code in _disabled_by_torch


def _watch_disabling() -> bool | None:
    """Put a wrapper on `DisableContext.__call__`, which `torch.compiler.disable` and Dynamo itself
    call with each function. Returns whether no function can have been disabled before; None while
    Dynamo is not loaded."""
    # `disable(recursive=False)` does not come here: its wrapper (external_utils.py) only calls.
    eval_frame = get_imported(EVAL_FRAME)
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
            if _is_for_torch(_get_frame(1)):
                _disabled_by_torch.add(getattr(function, "__code__", None))
            else:
                _functions_disabled = True
                for listener in tuple(_disabling_listeners):
                    listener()
        return original(self, function)

    # In place before the module's import is over: nothing of the program was disabled before.
    from_start = is_initialising(eval_frame)
    wrapped: Any = functools.wraps(original)(disable)
    wrapped._compilediag = from_start
    context.__call__ = wrapped
    return from_start


_DISABLING_MODULES = ("torch.compiler", "torch._dynamo.decorators", EVAL_FRAME)


def _is_for_torch(frame: types.FrameType | None) -> bool:
    """True if torch itself disables a function: Dynamo does so with every graph it has compiled."""
    modules = (caller.f_globals.get("__name__") for caller in iterate_frames(frame))
    module = next((name for name in modules if name not in _DISABLING_MODULES), "")
    return str(module).startswith("torch.")


def find_graph_code(wrapper: types.FrameType, function: Any) -> types.CodeType | None:
    """Find the compiled code that calls `function` as its graph, through the call `wrapper` of
    torch's; None where it calls something else."""
    caller = wrapper.f_back
    if caller is None:
        return None
    # By identity: compiled code may call other disabled functions beside its graph.
    for name in caller.f_code.co_names:
        if name.startswith(_GRAPH):
            graph = caller.f_globals.get(name)
            if getattr(graph, "_torchdynamo_orig_callable", None) is function:
                return caller.f_code
    return None


def get_stance() -> str | None:
    """Get the stance in force now (`torch.compiler.set_stance`); None where torch has none."""
    # torch.compiler has no getter. Looked up each time: `set_stance` puts another object there.
    known = lookup(get_imported(EVAL_FRAME), "_stance.stance")
    return known if isinstance(known, str) else None


def watch_stance(callback: Callable[[str, types.FrameType], None]) -> Remover | None:
    """Call `callback(stance, frame)` after each stance that is set, with the frame that set it: of
    `set_stance` itself."""

    def report_stance(_before: Any, chosen: Any, *_: Any, **__: Any) -> None:
        callback(str(chosen.stance), _get_frame(2))

    # `set_stance` imports the function by its name: it is replaced there, not where it is defined.
    return call_beside(get_imported("torch._dynamo.decorators"), "_set_stance", after=report_stance)
