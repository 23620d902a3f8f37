"""The one place that touches torch's private names, feature-detected per version, with what is
lost when one is missing.

Nothing here imports a torch module that the target has not imported: names are looked up in
`sys.modules` (importing `torch._dynamo` early can change what a program compiles). Every function
answers None, an empty value or False where this torch has no such name; it never raises for that.
Checked against torch 2.7.1, 2.13.0 and 2.15.0 by tests/test_torch_api.py.
"""

from __future__ import annotations

import collections
import functools
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

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


def config_flag(name: str) -> Any:
    """A flag of `torch._dynamo.config` in force now; None while Dynamo is not imported."""
    return getattr(loaded("torch._dynamo.config"), name, None)


def stance() -> str | None:
    """The stance of `torch.compiler.set_stance` in force now."""
    known = getattr(getattr(loaded(EVAL_FRAME), "_stance", None), "stance", None)
    return known if isinstance(known, str) else None


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


_call_listeners: list[Callable[[int], None]] = []


def on_outermost_call(begin: Callable[[int], None]) -> Remover:
    """Calls `begin(key)` at the start of each outermost call of a compiled callable, from the
    moment Dynamo is loaded; `key` tells compiled callables apart. Returns what stops it."""
    _call_listeners.append(begin)
    watch_compiled_calls()

    def remove() -> None:
        if begin in _call_listeners:
            _call_listeners.remove(begin)

    return remove


def watch_compiled_calls() -> bool:
    """Puts the hook behind `on_outermost_call` in place; False while it cannot be.

    `torch.compile`'s wrapper asks `_callback_from_stance` once per call, after it has taken the
    previous eval-frame callback into its local `prior`: None there means that no compiled call is
    in progress in this thread.
    """
    eval_frame = loaded("torch._dynamo.eval_frame")
    original = getattr(eval_frame, "_callback_from_stance", None)
    if eval_frame is None or original is None:
        return False
    if getattr(original, "_compilediag", False):
        return True

    @functools.wraps(original)
    def ask(callback: Any) -> Any:
        if _call_listeners and callback is not None and callback is not False:
            caller = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
            in_wrapper = caller.f_code.co_name in ("compile_wrapper", "_fn")  # 2.7 says _fn
            names = caller.f_locals if in_wrapper else {"prior": callback}
            if names.get("prior") in (None, False):
                key = _key_of(names.get("fn"))
                for begin in tuple(_call_listeners):
                    begin(key)
        return original(callback)

    ask._compilediag = True  # type: ignore[attr-defined]
    eval_frame._callback_from_stance = ask
    return True


def _key_of(function: Any) -> int:
    """The module of a bound method, else the code of a function: compiling it again, with another
    backend or after a reset, makes no other callable of it."""
    owner = getattr(function, "__self__", None)
    return id(owner if owner is not None else getattr(function, "__code__", function))


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
    parts: list[str]
    """Texts of the guard, with the trailing comments."""


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
                yield Leaf(
                    manager.get_source(), type(leaf).__name__, leaf, leaf.verbose_code_parts()
                )
        if hasattr(manager, "get_key_value_managers"):
            for key_manager, value_manager in manager.get_key_value_managers().values():
                stack += [value_manager, key_manager]
        stack.extend(reversed(manager.get_child_managers()))
    epilogue = getattr(root, "get_epilogue_lambda_guards", lambda: ())()
    for leaf in epilogue:
        for part in leaf.verbose_code_parts():
            yield Leaf("", "SHAPE", None, [part])


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
