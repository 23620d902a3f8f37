"""The one place that touches torch's private names, feature-detected per version, with what is
lost when one is missing.

Nothing here imports a torch module that the target has not imported: names are looked up in
`sys.modules` (importing `torch._dynamo` early can change what a program compiles). Every function
answers None, an empty value or False where this torch has no such name; it never raises for that.
Checked against torch 2.7.1, 2.13.0 and 2.15.0 by tests/test_torch_api.py.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, cast

from compilediag_harness.tracebacks import leave_out_this_frame

Remover = Callable[[], None]

DYNAMO = "torch._dynamo"
UTILS = "torch._dynamo.utils"
GUARDS = "torch._dynamo.guards"
CONVERT_FRAME = "torch._dynamo.convert_frame"
"""Also the name of the logger that tells which frames are refused."""
EVAL_FRAME = "torch._dynamo.eval_frame"
GUARDS_LOG = "torch._dynamo.guards.__guards"
"""Name of the artifact logger "guards"."""


class Hook(NamedTuple):
    """A private name of torch we build on."""

    name: str
    module: str
    attribute: str
    """Dotted path below the module."""
    lost: str
    """What cannot be observed without it."""


HOOKS = (
    Hook(
        "metrics_rows",
        "torch._dynamo.utils",
        "_compilation_metrics",
        "compiles, their seconds and failures: the run is blind",
    ),
    Hook(
        "recompile_reasons",
        "torch._dynamo.convert_frame",
        "get_and_maybe_log_recompilation_reasons",
        "recompiles are seen only through torch's metrics, with one reason each",
    ),
    Hook(
        "guard_managers",
        "torch._dynamo.guards",
        "CheckFunctionManager.__init__",
        "user lines of guards, instance tests and armed hazards",
    ),
    Hook(
        "cache_entries",
        "torch._C._dynamo.eval_frame",
        "_debug_get_cache_entry_list",
        "armed hazards after a step",
    ),
    Hook(
        "compile_callback",
        "torch._dynamo.callback",
        "callback_handler.register_start_callback",
        "the live view cannot say that a compile is running",
    ),
    Hook(
        "compiled_calls",
        "torch._dynamo.eval_frame",
        "_callback_from_stance",
        "steps of programs without an optimizer or cd.step()",
    ),
    Hook(
        "call_ends",
        EVAL_FRAME,
        "_maybe_set_eval_frame",
        "the forward phase of steps, and the time of functions that are not compiled on purpose",
    ),
    Hook(
        "backward_calls",
        "torch.autograd.graph",
        "_engine_run_backward",
        "the backward phase of steps",
    ),
    Hook(
        "saves",
        "torch.serialization",
        "_save",
        "the time of torch.save as a checkpoint",
    ),
    Hook(
        "log_state",
        "torch._logging._internal",
        "log_state.enable_artifact",
        "graph breaks and the text log",
    ),
    Hook(
        "log_init",
        "torch._logging._internal",
        "_init_logs",
        "the text log after a call of torch._logging.set_logs",
    ),
    Hook(
        "reset",
        "torch._dynamo",
        "reset",
        "torch._dynamo.reset(): compile ids may be mixed up",
    ),
    Hook(
        "compile_requests",
        "torch._dynamo",
        "optimize",
        "backend, mode and options of torch.compile: receipts are compared without them",
    ),
    Hook(
        "recompile_limit",
        "torch._dynamo.config",
        "recompile_limit",
        "the head-room to the recompile limit",
    ),
)


def loaded(module: str) -> Any | None:
    """The module, if the target has imported it."""
    return sys.modules.get(module)


def _lookup(module: Any, path: str) -> Any | None:
    value = module
    for part in path.split("."):
        value = getattr(value, part, None)
        if value is None:
            return None
    return value


def available(hook: Hook) -> bool | None:
    """Whether the name exists; None while its module is not imported."""
    module = loaded(hook.module)
    return None if module is None else _lookup(module, hook.attribute) is not None


def probe() -> list[tuple[str, bool, str]]:
    """(hook, available, what is lost) for every private name. Imports torch and Dynamo: for
    `compilediag doctor` and for tests, never for a run."""
    import importlib

    found: list[tuple[str, bool, str]] = []
    for hook in HOOKS:
        try:
            importlib.import_module(hook.module)
            ok = bool(available(hook))
        except ImportError:
            ok = False
        found.append((hook.name, ok, hook.lost))
    return found


def _replace(owner: Any, name: str, wrapper: Any) -> Remover:
    """Puts `wrapper` in place and returns what undoes it, unless somebody wrapped it again."""
    original = getattr(owner, name)
    setattr(owner, name, wrapper)

    def restore() -> None:
        if getattr(owner, name) is wrapper:
            setattr(owner, name, original)

    return restore


# --- compiles --------------------------------------------------------------------------------


class _Rows(collections.deque[Any]):
    """torch's own list of metrics rows, which also tells of each row as it is added.

    torch keeps 64 rows and forgets the rest; nothing public announces a new one.
    """

    listeners: list[Callable[[Any], None]]

    def append(self, row: Any, /) -> None:
        super().append(row)
        for listener in self.listeners:
            listener(row)


def _replace_rows(listeners: list[Callable[[Any], None]]) -> None:
    utils = loaded("torch._dynamo.utils")
    rows = utils._compilation_metrics  # type: ignore[union-attr]
    if listeners:
        watched = _Rows(rows, rows.maxlen)
        watched.listeners = listeners
    else:
        watched = collections.deque(rows, rows.maxlen)
    utils._compilation_metrics = watched  # type: ignore[union-attr]


def on_metrics_row(listener: Callable[[Any], None]) -> bool:
    """Calls `listener` with every compilation metrics row from now on; True when in place.

    `set_compilation_metrics_limit` replaces the list and with it the listeners: call again now and
    then, it is cheap and idempotent.
    """
    rows = getattr(loaded("torch._dynamo.utils"), "_compilation_metrics", None)
    if not isinstance(rows, collections.deque):
        return False
    if isinstance(rows, _Rows):
        if listener not in rows.listeners:
            rows.listeners.append(listener)
    else:
        _replace_rows([listener])
    return True


def forget_metrics_rows(listener: Callable[[Any], None]) -> None:
    """Undoes `on_metrics_row`; the last listener to go leaves torch a plain list again."""
    rows = getattr(loaded("torch._dynamo.utils"), "_compilation_metrics", None)
    if isinstance(rows, _Rows) and listener in rows.listeners:
        rows.listeners.remove(listener)
        if not rows.listeners:
            _replace_rows([])


def on_compile_start(callback: Callable[[str, str], None]) -> Remover | None:
    """Calls `callback(trigger, compile_id)` when a compile begins (2.8+ names both; 2.7 neither).
    `torch._dynamo.reset()` forgets it: install again."""
    handler = _lookup(loaded("torch._dynamo.callback"), "callback_handler")
    if handler is None or not hasattr(handler, "register_start_callback"):
        return None

    def started(*args: Any) -> None:
        if args:
            trigger = getattr(getattr(args[0], "callback_trigger", None), "name", "DYNAMO")
            callback(trigger, str(getattr(args[0], "compile_id", "") or ""))
        else:
            callback("DYNAMO", current_compile_id())

    handler.register_start_callback(started)

    def remove() -> None:
        if started in handler.start_callbacks:
            handler.remove_start_callback(started)

    return remove


def compile_callbacks() -> Any | None:
    """Torch's object whose list `start_callbacks` holds what is called when a compile begins; a
    reset empties the list."""
    handler = _lookup(loaded("torch._dynamo.callback"), "callback_handler")
    return handler if isinstance(getattr(handler, "start_callbacks", None), list) else None


def on_reset(callback: Callable[[], None]) -> Remover | None:
    """Calls `callback` after `torch._dynamo.reset()`."""
    dynamo = loaded("torch._dynamo")
    original = getattr(dynamo, "reset", None)
    if dynamo is None or original is None:
        return None

    @functools.wraps(original)
    def reset(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        finally:
            callback()

    return _replace(dynamo, "reset", reset)


def on_compile_request(callback: Callable[[dict[str, Any]], None]) -> Remover | None:
    """Calls `callback` with backend, mode, dynamic, fullgraph and cudagraphs of each
    `torch.compile(...)`, which hands them to `torch._dynamo.optimize`."""
    dynamo = loaded("torch._dynamo")
    original = getattr(dynamo, "optimize", None)
    if dynamo is None or original is None:
        return None

    @functools.wraps(original)
    def optimize(*args: Any, **kwargs: Any) -> Any:
        callback(_request_of(*args, **kwargs))
        return original(*args, **kwargs)

    return _replace(dynamo, "optimize", optimize)


def _request_of(
    backend: Any = "inductor", nopython: Any = False, dynamic: Any = None, **rest: Any
) -> dict[str, Any]:
    """What was asked for. `torch.compile` turns a mode into options of its inductor wrapper."""
    options: dict[str, Any] | None = getattr(backend, "config", None)
    name = backend if isinstance(backend, str) else getattr(backend, "compiler_name", None)
    is_inductor = name == "inductor"
    return {
        "backend": str(name or getattr(backend, "__name__", None) or type(backend).__name__),
        "mode": _mode_of(options) if is_inductor and options is not None else None,
        "dynamic": dynamic if isinstance(dynamic, bool) else None,
        "fullgraph": bool(nopython or rest.get("fullgraph")),
        "cudagraphs": bool(options.get("triton.cudagraphs")) if options is not None else None,
    }


_MODES = {
    (): "default",
    ("triton.cudagraphs",): "reduce-overhead",
    ("coordinate_descent_tuning", "max_autotune"): "max-autotune-no-cudagraphs",
    ("coordinate_descent_tuning", "max_autotune", "triton.cudagraphs"): "max-autotune",
}


def _mode_of(options: dict[str, Any]) -> str:
    """The mode that sets just these options, "options" when none does."""
    return _MODES.get(tuple(sorted(name for name, value in options.items() if value)), "options")


def current_compile_id() -> str:
    """The compile in progress in this thread, "" outside of one."""
    context = _lookup(loaded("torch._guards"), "CompileContext")
    if context is None:
        return ""
    try:
        return str(context.current_compile_id() or "")
    except Exception:
        return ""


def recompile_limit() -> int | None:
    """`torch._dynamo.config.recompile_limit` in force now."""
    config = loaded("torch._dynamo.config")
    limit = getattr(config, "recompile_limit", None)
    return limit if isinstance(limit, int) else None


def recompile_limit_of(function: Any) -> int | None:
    """How often torch compiles a compiled callable before it runs it eagerly: what
    `torch.compile(recompile_limit=...)` was given, else what the config says. None while Dynamo is
    not imported."""
    own = _own_recompile_limit(function)
    return recompile_limit() if own is None else own


def _own_recompile_limit(function: Any) -> int | None:
    """None also where this torch does not let it be seen."""
    try:
        if "dynamo_ctx" in vars(function):
            callback = function.dynamo_ctx.callback
        else:
            variables = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
            callback = dict(variables)["callback"].cell_contents
        limit = callback._torchdynamo_orig_backend._recompile_limit
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return limit if isinstance(limit, int) else None


def config_flag(name: str) -> Any:
    """A flag of `torch._dynamo.config` in force now; None while Dynamo is not imported."""
    return getattr(loaded("torch._dynamo.config"), name, None)


def stance() -> str | None:
    """The stance of `torch.compiler.set_stance` in force now."""
    known = getattr(getattr(loaded(EVAL_FRAME), "_stance", None), "stance", None)
    return known if isinstance(known, str) else None


def mark_fixed(tensor: Any, *, address: bool) -> bool:
    """Makes Dynamo compile for exactly the sizes of `tensor`, whatever sizes it has seen, and with
    `address` take it to stay where it is. False while Dynamo is not imported: nothing is compiled
    then."""
    decorators = loaded("torch._dynamo.decorators")
    if decorators is None or tensor.dim() == 0:
        return decorators is not None
    decorators.mark_static(tensor)
    if address:
        decorators.mark_static_address(tensor, guard=False)
    return True


def original_of(function: Any) -> Any:
    """What a compiled callable was made from; the callable itself where it is none."""
    inside = getattr(function, "__dict__", {})
    modules = inside.get("_modules")
    if isinstance(modules, dict) and "_orig_mod" in modules:
        return cast(dict[str, Any], modules)["_orig_mod"]
    return inside.get("_torchdynamo_orig_callable", function)


def never_compile(torch_module: Any, *codes: types.CodeType, callees: bool) -> bool:
    """Marks code that Dynamo is to run as it is, and what it calls too unless `callees`. False
    where this torch cannot do it."""
    try:
        native: Any = torch_module._C._dynamo.eval_frame
        skip, default = native._FrameAction.SKIP, native._FrameAction.DEFAULT
        strategy = native._FrameExecStrategy(skip, default if callees else skip)
        mark = native.set_code_exec_strategy
    except AttributeError:
        return False
    for code in codes:
        mark(code, strategy)
    return True


def loader_iterator(torch_module: Any) -> Any:
    """The class whose `__next__` gives a DataLoader's batches. Raises AttributeError if gone."""
    return torch_module.utils.data.dataloader._BaseDataLoaderIter


def totals() -> dict[str, int]:
    """torch's own totals: frames_total, frames_ok, unique_graphs, break_events."""
    counters = getattr(loaded("torch._dynamo.utils"), "counters", None)
    if counters is None:
        return {}
    return {
        "frames_total": int(counters["frames"]["total"]),
        "frames_ok": int(counters["frames"]["ok"]),
        "unique_graphs": int(counters["stats"]["unique_graphs"]),
        "break_events": sum(counters["graph_break"].values()),
    }


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


MOST_DEVICES = 64


def device_memory() -> dict[int, dict[str, Any]]:
    """The statistics of each CUDA device's allocator that was used, nested as torch gives them;
    empty while the program has not initialised CUDA, which this never does. Waits for no device."""
    cuda = loaded("torch.cuda")
    if cuda is None or not cuda.is_initialized():
        return {}
    read = {
        device: cuda.memory_stats_as_nested_dict(device)
        for device in range(min(cuda.device_count(), MOST_DEVICES))
    }
    return {
        device: stats
        for device, stats in read.items()
        if stats.get("reserved_bytes", {}).get("all", {}).get("peak")
    }


def profiler_enabled() -> bool:
    """Whether a profiler runs in this thread already; False where that cannot be asked."""
    autograd = loaded("torch._C._autograd") or getattr(loaded("torch._C"), "_autograd", None)
    ask = getattr(autograd, "_profiler_enabled", None)
    return bool(ask()) if ask is not None else False


# --- phases of a step and checkpoints ----------------------------------------------------------

DISTRIBUTED_SAVER = "torch.distributed.checkpoint.state_dict_saver"


def around_backward(torch_module: Any, begin: Callable[[], Any], end: Callable[[Any], None]) -> Any:
    """Calls `begin()`, and `end` with what it answered, around each run of the autograd engine that
    Python starts (`backward`, `torch.autograd.grad`), for ever. Returns the function that was put
    in place, for Dynamo to be kept away from; None where it cannot be."""
    graph = loaded("torch.autograd.graph")
    original = getattr(graph, "_engine_run_backward", None)
    if graph is None or original is None:
        return None

    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        answer = begin()
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            leave_out_this_frame(error)
            raise
        finally:
            end(answer)

    for owner in (graph, torch_module.autograd):
        if getattr(owner, "_engine_run_backward", None) is original:
            owner._engine_run_backward = run
    return run


def around_saves(
    module: str, names: Iterable[str], around: Callable[[], AbstractContextManager[Any]]
) -> list[Any]:
    """Enters `around()` for each call of the functions `names` of a module that is imported, for
    ever. Returns what was put in place, for Dynamo to be kept away from."""
    owner = loaded(module)
    made: list[Any] = []
    for name in names:
        original = getattr(owner, name, None)
        if isinstance(original, types.FunctionType) and not hasattr(original, "_compilediag"):
            made.append(_saving(original, around))
            setattr(owner, name, made[-1])
    return made


def _saving(original: types.FunctionType, around: Callable[[], AbstractContextManager[Any]]) -> Any:
    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        with around():
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                leave_out_this_frame(error)
                raise

    save._compilediag = True  # type: ignore[attr-defined]
    return save


def cuda_in_use(torch_module: Any) -> bool:
    """Whether this process uses CUDA and captures no graph now. Initialises nothing."""
    cuda = getattr(torch_module, "cuda", None)
    try:
        return bool(cuda.is_initialized() and not cuda.is_current_stream_capturing())  # type: ignore[union-attr]
    except Exception:
        return False


def cuda_event(torch_module: Any) -> Any:
    """An event that can be timed."""
    return torch_module.cuda.Event(enable_timing=True)


def compiling() -> bool:
    """Whether a compile is in progress in this thread: what runs then is torch's own work."""
    return current_compile_id() != ""


# --- recompiles and guards -------------------------------------------------------------------


def on_recompile_question(
    callback: Callable[[list[Any], Any, list[str]], None],
) -> Remover | None:
    """Calls `callback(cache_entries, frame, reasons)` each time torch asks why no cache entry of a
    frame fits. `frame` has `f_locals` and `f_code`. Calls made with `skip_logging` are repeats of
    the same event (2.9 to 2.11) or questions of a stance, and are left out."""
    convert_frame = loaded("torch._dynamo.convert_frame")
    original = getattr(convert_frame, "get_and_maybe_log_recompilation_reasons", None)
    if convert_frame is None or original is None:
        return None

    @functools.wraps(original)
    def ask(entries: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
        repeat = bool(kwargs.get("skip_logging")) or (len(args) > 1 and bool(args[1]))
        reasons: list[str] = []
        try:
            reasons = original(entries, frame, *args, **kwargs)
            return reasons
        finally:
            if not repeat:
                callback(entries_of(entries), frame, list(reasons or ()))

    return _replace(convert_frame, "get_and_maybe_log_recompilation_reasons", ask)


def entries_of(first: Any) -> list[Any]:
    """torch <= 2.12 passes the head of a linked list of cache entries, later versions a list."""
    if first is None:
        return []
    if isinstance(first, (list, tuple)):
        return list(first)  # pyright: ignore[reportUnknownArgumentType]
    entries: list[Any] = []
    while first is not None:
        entries.append(first)
        first = first.next
    return entries


def on_guards_built(
    callback: Callable[[Any, str, dict[str, Any], Iterable[Any]], None],
) -> Remover | None:
    """Calls `callback(code, compile_id, local_scope, guards)` after each compile built its guards.
    `local_scope` is the frame's locals at compile time, `guards` torch's Guard objects."""
    manager = _lookup(loaded("torch._dynamo.guards"), "CheckFunctionManager")
    original = getattr(manager, "__init__", None)
    if manager is None or original is None:
        return None

    @functools.wraps(original)
    def build(self: Any, f_code: Any, output_graph: Any, *args: Any, **kwargs: Any) -> None:
        scope = dict(getattr(output_graph, "local_scope", None) or {})
        guards = list(getattr(output_graph, "guards", None) or ())
        original(self, f_code, output_graph, *args, **kwargs)
        callback(f_code, current_compile_id(), scope, guards)

    return _replace(manager, "__init__", build)


def cache_entries(code: Any) -> list[Any]:
    """The live cache entries of a code object, most recently used first."""
    ask = getattr(loaded("torch._C._dynamo.eval_frame"), "_debug_get_cache_entry_list", None)
    return [] if ask is None else list(ask(code))


def _relational_types() -> tuple[type, ...]:
    """Guards over several values: they cannot be called from Python. 2.7 has no common base."""
    native = loaded("torch._C._dynamo.guards")
    names = ("RelationalGuard", "NO_TENSOR_ALIASING", "OBJECT_ALIASING", "STORAGE_OVERLAPPING")
    return tuple(t for name in names if isinstance(t := getattr(native, name, None), type))


class Leaf(NamedTuple):
    """One leaf guard: `check` is callable with the value that `source` evaluates to."""

    source: str
    kind: str
    check: Any
    condition: str = ""
    """Text of a shape condition, which has no `check`."""

    @property
    def parts(self) -> list[str]:
        """Texts of the guard, with the trailing comments. torch makes them anew each time."""
        return [self.condition] if self.check is None else self.check.verbose_code_parts()


def leaves_of(entry: Any) -> Iterator[Leaf]:
    """Every callable leaf guard of a cache entry, in guard order, and its symbolic shape
    conditions last (kind "SHAPE", `check` None, one leaf per condition)."""
    root = getattr(entry.guard_manager, "root", None)
    if root is None:
        return
    relational = _relational_types()
    stack = [root]
    while stack:
        manager = stack.pop()
        if manager is None:
            continue
        for leaf in manager.get_leaf_guards():
            if not isinstance(leaf, relational):
                yield Leaf(manager.get_source(), type(leaf).__name__, leaf)
        if hasattr(manager, "get_key_value_managers"):
            for key_manager, value_manager in manager.get_key_value_managers().values():
                stack += [value_manager, key_manager]
        stack.extend(reversed(manager.get_child_managers()))
    epilogue = getattr(root, "get_epilogue_lambda_guards", lambda: ())()
    for leaf in epilogue:
        for part in leaf.verbose_code_parts():
            yield Leaf("", "SHAPE", None, part)


def scope_of(entry: Any, f_locals: dict[str, Any]) -> dict[str, Any]:
    """The names a guard's source is written in: L, G and torch's closure helpers."""
    manager = entry.guard_manager
    scope = dict(getattr(manager, "closure_vars", None) or {})
    scope["L"] = f_locals
    global_scope: dict[str, Any] = getattr(manager, "global_scope", None) or {}
    scope["G"] = global_scope.get("G", {})
    return scope


def guard_kind(guard: Any) -> str:
    """The kind of a Guard object, such as "TENSOR_MATCH"."""
    if hasattr(guard, "create_fn_name"):
        return str(guard.create_fn_name())
    return str(getattr(guard.inner_create_fn(), "__name__", ""))  # 2.7


def dispatch_keys(tensor: Any) -> str | None:
    """The dispatch key set of a tensor as guards print it."""
    ask = getattr(loaded("torch._C"), "_dispatch_keys", None)
    return None if ask is None else str(ask(tensor))


def is_on_host(tensor: Any) -> bool | None:
    """Whether a tensor is on the CPU, asked below every `__torch_function__`; None if not known."""
    native = loaded("torch._C")
    ask, key = getattr(native, "_dispatch_keys", None), _lookup(native, "DispatchKey.CPU")
    return None if ask is None or key is None else bool(ask(tensor).has(key))


def storage_of(tensor: Any) -> int | None:
    """What tells apart the memory of tensors that are views of one another; None where a tensor
    has none. Asked below every `__torch_function__`."""
    native = loaded("torch._C")
    below = getattr(native, "DisableTorchFunction", None)
    if below is None:
        return None
    try:
        with below():
            return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError, AttributeError):
        return None


class TensorMemory(NamedTuple):
    """Where a tensor lies, and how much it is."""

    storage: int
    """Tells apart the memory of tensors that are views of one another."""
    storage_bytes: int
    element_bytes: int
    elements: int
    shape: tuple[int, ...]
    fresh: bool
    """Nothing has been written into it since it was made."""


def is_tensor(value: Any) -> bool:
    """Whether something is a tensor."""
    tensor = getattr(loaded("torch"), "Tensor", None)
    return tensor is not None and isinstance(value, tensor)


def memory_of(tensor: Any) -> TensorMemory | None:
    """Where a tensor lies; None for one without memory of its own. Asked below every
    `__torch_function__`; nothing of its data is read."""
    below = getattr(loaded("torch._C"), "DisableTorchFunction", None)
    if below is None:
        return None
    try:
        with below():
            storage = tensor.untyped_storage()
            shape = tuple(int(size) for size in tensor.shape)
            return TensorMemory(
                storage=int(storage._cdata),
                storage_bytes=int(storage.nbytes()),
                element_bytes=int(tensor.element_size()),
                elements=int(tensor.numel()),
                shape=shape,
                fresh=not tensor.is_inference() and tensor._version == 0,
            )
    except (RuntimeError, NotImplementedError, AttributeError, TypeError):
        return None


# --- logs ------------------------------------------------------------------------------------


def log_internals() -> tuple[Any, Any] | None:
    """torch's (log_registry, log_state), None where they are not as expected."""
    internal = loaded("torch._logging._internal")
    registry, state = getattr(internal, "log_registry", None), getattr(internal, "log_state", None)
    if not hasattr(registry, "get_log_qnames") or not hasattr(state, "enable_artifact"):
        return None
    return registry, state


def first_line_of_refused_frame(name: str) -> int:
    """The first line of the frame called `name` that convert_frame logs about right now, read from
    the caller's local `frame`; 0 when it is not there."""
    caller: Any = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    for _ in range(12):
        if caller is None:
            return 0
        if caller.f_code.co_filename.endswith("convert_frame.py"):
            code = getattr(caller.f_locals.get("frame"), "f_code", None)
            if code is not None and code.co_name == name:
                return int(code.co_firstlineno)
        caller = caller.f_back
    return 0


def disable_artifact(name: str) -> None:
    """Takes one artifact out of torch's log state again."""
    internals = log_internals()
    names = getattr(internals[1], "artifact_names", None) if internals else None
    if names is not None:
        names.discard(name)


def configure_artifact(logger: Any) -> None:
    """Applies torch's log state to one artifact logger, as torch does at its creation."""
    configure = getattr(loaded("torch._logging._internal"), "configure_artifact_log", None)
    if configure is not None:
        configure(logger)


def guard_lines_need_logger() -> bool:
    """Whether this torch (2.7, 2.8) notes the user's line of a guard only while it logs guards."""
    version = str(getattr(loaded("torch"), "__version__", "")).split(".")
    return version[:1] == ["2"] and version[1:2] in (["7"], ["8"])


def torch_formatter() -> Any | None:
    """The formatter of torch's own terminal output (time, process, compile id, artifact)."""
    return getattr(loaded("torch._logging._internal"), "DEFAULT_FORMATTER", None)


def on_logs_initialised(callback: Callable[[], None]) -> Remover | None:
    """Calls `callback` after torch set its loggers up anew (`set_logs`, re-initialisation)."""
    internal = loaded("torch._logging._internal")
    original = getattr(internal, "_init_logs", None)
    if internal is None or original is None:
        return None

    @functools.wraps(original)
    def initialise(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        finally:
            callback()

    return _replace(internal, "_init_logs", initialise)


# --- modules ---------------------------------------------------------------------------------


def global_forward_hooks() -> tuple[int, int]:
    """How many global module forward hooks and pre-hooks are registered."""
    module = loaded("torch.nn.modules.module")
    return (
        len(getattr(module, "_global_forward_hooks", ())),
        len(getattr(module, "_global_forward_pre_hooks", ())),
    )


def module_hooks(module: Any) -> tuple[int, int]:
    """How many forward hooks and pre-hooks one module has."""
    return (
        len(getattr(module, "_forward_hooks", ())),
        len(getattr(module, "_forward_pre_hooks", ())),
    )


_HOOK_REGISTRIES = (
    ("forward_hook", "_forward_hooks"),
    ("forward_pre_hook", "_forward_pre_hooks"),
    ("backward_hook", "_backward_hooks"),
    ("backward_pre_hook", "_backward_pre_hooks"),
    ("accumulate_grad_hook", "_post_accumulate_grad_hooks"),
)


def hook_registries(owner: Any) -> Iterator[tuple[str, dict[Any, Any]]]:
    """Kind and hooks of each table of hooks that a module or a tensor has. The hooks a tensor keeps
    under a module's name are its own: they are called with its gradient."""
    is_module = hasattr(owner, "_forward_hooks")
    for kind, name in _HOOK_REGISTRIES:
        registry = getattr(owner, name, None)
        if isinstance(registry, dict) and registry:
            told = kind if is_module or name != "_backward_hooks" else "tensor_hook"
            yield told, registry  # pyright: ignore[reportUnknownVariableType]


def is_disabled(function: Any) -> bool:
    """Whether a function is behind `torch.compiler.disable`."""
    return bool(getattr(function, "_torchdynamo_disable", False))
