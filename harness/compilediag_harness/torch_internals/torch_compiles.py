"""torch's compiles: rows of its metrics, starts, ends and phases, resets, arguments of
`torch.compile`, and the conditions on symbolic sizes that a graph is built under."""

from __future__ import annotations

import collections
import contextlib
import functools
import sys
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from itertools import dropwhile, islice
from typing import Any, NamedTuple, cast

from compilediag_harness.base.hidden_frame import hide_own_frame
from compilediag_harness.base.object_graph import iterate_frames
from compilediag_harness.base.resumed_frames import find_resumed_function
from compilediag_harness.torch_internals.torch_names import (
    CONVERT_FRAME,
    DYNAMO,
    EVAL_FRAME,
    EXPORT,
    SYMBOLIC_CONVERT,
    SYMBOLIC_SHAPES,
    UTILS,
    Remover,
    Removers,
    call_beside,
    get_imported,
    lookup,
    replace_attribute,
    subscribe,
)
from compilediag_harness.wire.compiles import PhaseStack

PhaseListener = Callable[[str, int], None]
"""Called with a phase's name and the time in nanoseconds, in the thread that compiles."""


class _Rows(collections.deque[Any]):
    """torch's own list of metrics rows, which also hands each row that is added to listeners.

    torch keeps 64 rows and forgets the rest; nothing public announces a new one.
    """

    listeners: list[Callable[[Any], None]]

    def append(self, row: Any, /) -> None:
        super().append(row)
        for listener in self.listeners:
            listener(row)


def watch_metrics_rows(listener: Callable[[Any], None]) -> bool:
    """Call `listener` with every compilation metrics row from now on; True when in place.

    `set_compilation_metrics_limit` replaces the list and with it the listeners: call again now and
    then, it is cheap and idempotent.
    """
    # Not `record_compilation_metrics`: the metrics contexts of torch hold that function already
    # (`on_exit`), while the list is read by its name at each row.
    utils: Any = get_imported(UTILS)
    rows: Any = getattr(utils, "_compilation_metrics", None)
    if not isinstance(rows, collections.deque):
        return False
    if not isinstance(rows, _Rows):
        rows = utils._compilation_metrics = _Rows(list[Any](rows), rows.maxlen)  # pyright: ignore[reportUnknownArgumentType]
        rows.listeners = []
    if listener not in rows.listeners:
        rows.listeners.append(listener)
    return True


def forget_metrics_rows(listener: Callable[[Any], None]) -> None:
    """Undo `watch_metrics_rows`; the last listener to go leaves torch a plain list again."""
    utils: Any = get_imported(UTILS)
    rows: Any = getattr(utils, "_compilation_metrics", None)
    if isinstance(rows, _Rows) and listener in rows.listeners:
        rows.listeners.remove(listener)
        if not rows.listeners:
            utils._compilation_metrics = collections.deque[Any](rows, rows.maxlen)


def watch_compile_starts(callback: Callable[[str, str], None]) -> Remover | None:
    """Call `callback(trigger, compile_id)` when a compile begins (2.7 names neither)."""
    name = "run_start_callbacks"
    return _call_before_callbacks(name, lambda *args: callback(*_read_trigger_and_id(*args)))


def _read_trigger_and_id(given: Any = None) -> tuple[str, str]:
    # No closure, so that what it calls is run as it is: the name of an enum is a Python function.
    if given is None:
        return "DYNAMO", get_compile_id()
    trigger = getattr(getattr(given, "callback_trigger", None), "name", "DYNAMO")
    return trigger, str(getattr(given, "compile_id", "") or "")


def watch_traced_lines(callback: Callable[[types.CodeType, int], None]) -> Remover | None:
    """Call `callback(code, line)` with each line that Dynamo traces, of inlined functions too."""
    translator = lookup(get_imported(SYMBOLIC_CONVERT), "InstructionTranslatorBase")

    def report_line(translating: Any, lineno: int, *_: Any, **__: Any) -> None:
        # An instruction without a line, as the jump over an `else`, has that of the one before it
        # in the code, which need not have run; in code behind a graph break it is written as its
        # own. Python 3.10 tells of none.
        at, code = translating.current_instruction, translating.f_code
        positions = getattr(at, "positions", None)
        is_resumed = find_resumed_function(code.co_name) is not None
        is_own = positions is None or positions.lineno == lineno
        if is_own and not (is_resumed and at.opname.startswith("JUMP")):
            callback(code, lineno)

    return call_beside(translator, "starts_line", before=report_line)


def watch_compile_ends(callback: Callable[[], None]) -> Remover | None:
    """Call `callback()` when the last of the compiles in progress has ended, in whatever thread:
    torch runs these for the first begin and the last end alone. 2.7 may run them for each."""
    return _call_before_callbacks("run_end_callbacks", lambda *_: callback())


_before_callbacks_listeners: dict[str, list[Callable[..., None]]] = {}
"""Listeners that are called before torch's own callbacks, by the function of torch's handler."""


def _call_before_callbacks(name: str, callback: Callable[..., None]) -> Remover | None:
    """Call `callback` before torch calls those that are registered with it. Ours is not registered:
    the program may list those, and a reset forgets them."""
    # Invariant: `install_callbacks` (torch/_dynamo/callback.py) calls these under a lock that is
    # not reentrant: a listener that compiles, or waits for a thread that does, waits for ever.
    known = lookup(get_imported("torch._dynamo.callback"), "callback_handler")
    handler = cast(Any, type(known))
    original = getattr(handler, name, None)
    if original is None:
        return None
    if name not in _before_callbacks_listeners:
        listeners = _before_callbacks_listeners[name] = []

        @functools.wraps(original)
        def run_callbacks(self: Any, *args: Any) -> Any:
            for listener in tuple(listeners):
                listener(*args)
            with hide_own_frame:
                return original(self, *args)

        # For ever: the class has it once, however many sessions come and go.
        setattr(handler, name, run_callbacks)
    return subscribe(_before_callbacks_listeners[name], callback)


class FrameBeingCompiled(NamedTuple):
    """A frame that `convert_frame` compiles."""

    code: types.CodeType
    values: Mapping[str, Any] | None
    """The local variables with which it was called; None where torch does not have them."""
    compiled_by: types.FrameType
    """The call of torch's that compiles it."""


def find_compiling_frame() -> FrameBeingCompiled | None:
    """Find the innermost frame that `convert_frame` compiles in this thread, while torch begins or
    ends to compile it; None outside a compile."""
    # Both are local variables of `_compile`, some calls above. No other call's are read: reading
    # keeps them as long as the frame lives, also an exception that it handles.
    for caller in iterate_frames(sys._getframe(1), 24):  # pyright: ignore[reportPrivateUsage]
        module, name = caller.f_globals.get("__name__"), caller.f_code.co_name
        if name == "_compile" and module == CONVERT_FRAME:
            names = caller.f_locals
            code, values = names.get("code"), names.get("locals")
            if isinstance(code, types.CodeType):
                given = cast(dict[str, Any], values) if isinstance(values, dict) else None
                return FrameBeingCompiled(code, given, caller)
    return None


def find_frame_awaiting_backward() -> types.FrameType | None:
    """Find the call of another thread that waits for the backward in which this thread, one of the
    autograd engine's, is at work; None where it is not the only such call."""
    # An engine's thread is made in C++: `threading` has only a stand-in for it.
    if type(threading.current_thread()).__name__ != "_DummyThread":
        return None
    waiting = [
        frame
        for thread in sys._current_frames().values()  # pyright: ignore[reportPrivateUsage]
        for frame in iterate_frames(thread, 4)  # a wait may itself be Python code
        if frame.f_code.co_name == "_engine_run_backward"
    ]
    return waiting[0] if len(waiting) == 1 else None


def watch_resets(callback: Callable[[], None]) -> Remover | None:
    """Call `callback` after `torch._dynamo.reset()`."""
    return call_beside(get_imported(DYNAMO), "reset", at_end=callback)


def watch_compile_requests(callback: Callable[[dict[str, Any]], None]) -> Remover | None:
    """Call `callback` with backend, mode, dynamic, fullgraph and cudagraphs of each
    `torch.compile(...)`, which hands them to `torch._dynamo.optimize`."""
    # Not `torch.compile`, which the program may have imported by name: it looks this one up.
    before: Callable[..., None] = lambda *args, **given: callback(_describe_request(*args, **given))
    return call_beside(get_imported(DYNAMO), "optimize", before=before)


def watch_floats(callback: Callable[[str, str], None]) -> Remover | None:
    """Call `callback(compile_id, source)` with what torch takes for a symbolic float no longer, for
    which it traces the frame again: "L['scale']", or "L['t'].item()" of a tensor without dimensions
    of float64 on the host, which Dynamo reads."""
    state = lookup(get_imported(SYMBOLIC_CONVERT), "TensorifyState")

    def report(name: Any, *_: Any) -> None:
        context = lookup(get_imported("torch._guards"), "TracingContext.try_get")
        env = lookup(context() if context is not None else None, "fake_mode.shape_env")
        known: dict[Any, Any] = getattr(env, "source_to_var", None) or {}
        for source, symbol in known.items():
            if str(symbol) == name:
                callback(get_compile_id(), str(source))

    return call_beside(state, "specialize", before=report)


def watch_exports(callback: Callable[[], None]) -> Remover | None:
    """Call `callback` whenever `torch.export` begins to export."""
    # A function that reports usage to nobody outside Meta: a wrapper of `_export` itself would
    # stand in the traceback of every export that fails.
    return call_beside(get_imported(EXPORT), "log_export_usage", before=lambda *_, **__: callback())


def is_exporting() -> bool:
    """True if `torch.export` or `torch._dynamo.export` is at work in this thread."""
    # Dynamo's metrics rows do not say; what is at work stands on the stack.
    for frame in iterate_frames(sys._getframe()):  # pyright: ignore[reportPrivateUsage]
        module = frame.f_globals.get("__name__")
        name = getattr(frame.f_code, "co_qualname", "")
        if module == EXPORT or (module == EVAL_FRAME and name.startswith("export.<locals>.")):
            return True
    return False


def _describe_request(
    backend: Any = "inductor", nopython: Any = False, dynamic: Any = None, **rest: Any
) -> dict[str, Any]:
    """Describe the arguments of `torch.compile`, which turns a mode into options of inductor."""
    options: dict[str, Any] | None = getattr(backend, "config", None)
    name = backend if isinstance(backend, str) else getattr(backend, "compiler_name", None)
    mode = None
    if name == "inductor" and options is not None:
        # The mode that sets just these options, "options" when none does.
        given = sorted(option for option, value in options.items() if value)
        mode = _MODES.get(", ".join(given), "options")
    return {
        "backend": str(name or getattr(backend, "__name__", None) or type(backend).__name__),
        "mode": mode,
        "dynamic": dynamic if isinstance(dynamic, bool) else None,
        "fullgraph": bool(nopython or rest.get("fullgraph")),
        "cudagraphs": bool(options.get("triton.cudagraphs")) if options is not None else None,
    }


# The options that `torch.compile` makes of each mode (`list_mode_options` of torch._inductor).
_MODES = {
    "": "default",
    "triton.cudagraphs": "reduce-overhead",
    "coordinate_descent_tuning, max_autotune": "max-autotune-no-cudagraphs",
    "coordinate_descent_tuning, max_autotune, triton.cudagraphs": "max-autotune",
}


def get_compile_id() -> str:
    """Get the id of the compile in progress in this thread, "" outside one."""
    # `_TLS` of torch/_guards.py holds it: "" in any other thread, whatever compiles meanwhile.
    current = lookup(get_imported("torch._guards"), "CompileContext.current_compile_id")
    try:
        return str(current() or "") if current is not None else ""
    except Exception:
        return ""


def get_recompile_limit() -> int | None:
    """Get `torch._dynamo.config.recompile_limit` in force; None while Dynamo is not imported."""
    # Not to be stored: 2.13 patches the config in a compile for which a limit was passed.
    limit = getattr(get_imported("torch._dynamo.config"), "recompile_limit", None)
    return limit if isinstance(limit, int) else None


def lift_recompile_limit() -> Remover | None:
    """Lift the recompile limit of this process, whatever the program sets: torch's options belong
    to a thread from 2.12 on, and `torch.compile(recompile_limit=...)` to a callable."""
    # The function that compares, by the name under which `convert_frame` imports it.
    module = get_imported(CONVERT_FRAME)
    if not hasattr(module, "exceeds_recompile_limit"):
        return None
    is_exceeded: Callable[..., Any] = lambda *_, **__: (False, "")
    return replace_attribute(module, "exceeds_recompile_limit", is_exceeded)


def find_recompile_limit(function: Any) -> int | None:
    """Find how often torch compiles a compiled callable before it runs it eagerly: the argument
    `torch.compile(recompile_limit=...)`, else the config's. None while Dynamo is not imported."""
    # A compiled module keeps its context; a compiled function closes over the callback. Both lead
    # to `ConvertFrame`, whose `_recompile_limit` is the argument of `torch.compile`.
    try:
        if "dynamo_ctx" in vars(function):
            callback = function.dynamo_ctx.callback
        else:
            variables = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
            callback = dict(variables)["callback"].cell_contents
        limit = callback._torchdynamo_orig_backend._recompile_limit
    except (AttributeError, KeyError, TypeError, ValueError):
        limit = None  # also where this torch does not let it be seen
    return limit if isinstance(limit, int) else get_recompile_limit()


def read_totals() -> dict[str, int]:
    """Read torch's own totals: frames_total, frames_ok, unique_graphs, break_events. Empty while
    Dynamo is not imported."""
    counters = getattr(get_imported(UTILS), "counters", None)
    if counters is None:
        return {}
    return {
        "frames_total": read_counter("frames", "total") or 0,
        "frames_ok": read_counter("frames", "ok") or 0,
        "unique_graphs": read_counter("stats", "unique_graphs") or 0,
        "break_events": sum(counters.get("graph_break", {}).values()),
    }


def read_counter(kind: str, name: str) -> int | None:
    """Read one of `torch._dynamo.utils.counters`; None while Dynamo is not imported."""
    counters = getattr(get_imported(UTILS), "counters", None)
    # A look-up by index would make the entry, which the program sees.
    return None if counters is None else int(counters.get(kind, {}).get(name, 0))


def is_compile_in_progress() -> bool:
    """True if a compile is in progress in this thread: what runs then is torch's own work."""
    return get_compile_id() != ""


def watch_phases(began: PhaseListener, ended: PhaseListener) -> Sequence[Remover]:
    """Call the listeners when a timed part of a compile begins and ends; they must not raise.
    Empty where this torch times nothing."""
    # Every `dynamo_timed` reports to this one logger, whether or not anything is logged.
    logger = lookup(get_imported(UTILS), "ChromiumEventLogger")

    def make_listener(listener: PhaseListener) -> Callable[..., None]:
        def report_phase(_: Any, event_name: Any, time_ns: Any, *args: Any, **kwargs: Any) -> None:
            if isinstance(event_name, str) and isinstance(time_ns, int):
                listener(event_name, time_ns)

        return report_phase

    removers = (
        call_beside(logger, "log_event_start", before=make_listener(began)),
        call_beside(logger, "log_event_end", before=make_listener(ended)),
    )
    return () if None in removers else [remover for remover in removers if remover is not None]


class PhaseTimes(threading.local, PhaseStack):
    """The phases of what is compiled; each thread has its own."""


_EVALUATION_FILES = ("symbolic_shapes.py", "sym_node.py", "recording.py")
"""Files of torch that evaluate conditions, in the folder of symbolic shapes."""

_MAX_FRAMES = 192


class SizeCondition(NamedTuple):
    """A condition on symbolic sizes that torch evaluated, and guards from then on."""

    expression: str
    """As sympy prints it: "Eq(s77, 4)"."""
    sizes: tuple[tuple[str, str], ...]
    """Each symbol of it and the source of a size that has it: ("s77", "L['x'].size()[0]")."""
    traced: list[Any]
    """The stack of the code that Dynamo traces, outermost first; empty where it traces none."""
    frames: list[tuple[types.CodeType, int]]
    """Code and line of the calls in progress, innermost first, from what needed the value on."""


def watch_conditions(
    added: Callable[[Any, SizeCondition], None], fixed: Callable[[Any, tuple[str, ...]], None]
) -> Removers:
    """Call `added(shape_env, condition)` with each condition, and `fixed(shape_env, sources)` when
    the one added last made sizes constants. Both must not raise."""
    env = lookup(get_imported(SYMBOLIC_SHAPES), "ShapeEnv")
    log, replacing = getattr(env, "_log_guard", None), getattr(env, "_set_replacement", None)
    if log is None or replacing is None:
        return ()

    # Invariant: torch logs a condition before it makes a replacement of it (`evaluate_expr`, then
    # `_maybe_guard_rel`): so `fixed` is about the one that was added last.
    @functools.wraps(log)
    def log_guard(self: Any, prefix: Any, g: Any, *args: Any, **kwargs: Any) -> Any:
        _leave_out_our_lines()
        # "eval [guard suppressed]": evaluated, and not guarded.
        if "suppressed" not in str(prefix):
            added(self, _make_condition(self, g))
        with hide_own_frame:
            return log(self, prefix, g, *args, **kwargs)

    @functools.wraps(replacing)
    def set_replacement(self: Any, a: Any, *args: Any, **kwargs: Any) -> Any:
        before = _find_constant(self, a)
        with hide_own_frame:
            result = replacing(self, a, *args, **kwargs)
        if before is None and _find_constant(self, a) is not None:
            fixed(self, tuple(source for _, source in _list_sources(self, {a})))
        return result

    logged = replace_attribute(env, "_log_guard", log_guard)
    return logged, replace_attribute(env, "_set_replacement", set_replacement)


@functools.cache
def _leave_out_our_lines() -> None:
    """Add this file to those in which torch looks for no line to name beside a guard: it names the
    innermost that is in none of them. Done while torch compiles, since it imports modules."""
    # torch caches this set (`lru_cache`), so that what is added to it stays.
    with contextlib.suppress(Exception):
        skipped = lookup(get_imported(SYMBOLIC_SHAPES), "uninteresting_files")
        if skipped is not None:
            skipped().add(__file__)


def get_attempt() -> int:
    """Get the number of the attempt at the current compile: a restart begins another one."""
    current = lookup(get_imported("torch._guards"), "CompileContext.current_trace_id")
    trace = current() if current is not None else None
    attempt = getattr(trace, "attempt", 0)
    return attempt if isinstance(attempt, int) else 0


def _make_condition(env: Any, expression: Any) -> SizeCondition:
    symbols: Any = getattr(expression, "free_symbols", ())
    extract = lookup(get_imported("torch._guards"), "TracingContext.extract_stack")
    traced = list(extract()) if extract is not None else []
    # Invariant: called by `log_guard` directly (two frames up is torch's own evaluation).
    above = iterate_frames(sys._getframe(2))  # pyright: ignore[reportPrivateUsage]
    asking = dropwhile(lambda frame: frame.f_code.co_filename.endswith(_EVALUATION_FILES), above)
    frames = [(frame.f_code, frame.f_lineno) for frame in islice(asking, _MAX_FRAMES)]
    return SizeCondition(str(expression), tuple(_list_sources(env, symbols)), traced, frames)


def _list_sources(env: Any, symbols: Any) -> list[tuple[str, str]]:
    """List symbol and source of the sizes that have one of the symbols, or are equal to it."""
    replaced: dict[Any, Any] = getattr(env, "replacements", None) or {}
    known: dict[Any, Any] = getattr(env, "source_to_var", None) or {}
    sources: list[tuple[str, str]] = []
    for source, own in known.items():
        symbol = own if own in symbols else replaced.get(own)
        if symbol is not None and symbol in symbols:
            sources.append((str(symbol), str(source)))
    return sources


def _find_constant(env: Any, symbol: Any) -> Any | None:
    replaced: dict[Any, Any] = getattr(env, "replacements", None) or {}
    value = replaced.get(symbol)
    return value if getattr(value, "is_number", False) else None
