"""torch's private names that compilediag builds on, and the evidence lost when one is missing.

Nothing here or in the other `torch_*.py` imports a torch module that the target has not imported:
names are looked up in `sys.modules` (importing `torch._dynamo` early can change what a program
compiles). Every function returns None, an empty value or False where this torch has no such name;
it never raises for that. Checked against torch 2.7.1, 2.13.0 and 2.15.0 by
tests/torch/test_torch_api.py.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from compilediag_harness.base.hidden_frame import hide_own_frame

Remover = Callable[[], None]

Removers = Iterable[Remover | None]
"""What takes out what was put in; None where this torch has no place for it."""

DYNAMO = "torch._dynamo"
UTILS = "torch._dynamo.utils"
GUARDS = "torch._dynamo.guards"
EVAL_FRAME = "torch._dynamo.eval_frame"
EXPORT = "torch.export._trace"
SYMBOLIC_SHAPES = "torch.fx.experimental.symbolic_shapes"
LOGGING = "torch._logging._internal"

CONVERT_FRAME = "torch._dynamo.convert_frame"
SYMBOLIC_CONVERT = "torch._dynamo.symbolic_convert"


class Hook(NamedTuple):
    """A private name of torch we build on."""

    name: str
    """As in `TorchSeen` and in receipts: not to be renamed."""
    module: str
    attribute: str
    """Dotted path below the module; several, divided by "|", where versions of torch differ."""
    lost: str
    """What cannot be observed without it."""


# Ordered as they are reported. A rename in torch shows as a hook that is not available, never as an
# error: the receipt then states what was lost.
HOOKS = (
    Hook(  # a deque of 64 rows, filled by record_compilation_metrics
        "metrics_rows",
        UTILS,
        "_compilation_metrics",
        "compiles, their seconds and failures: the run is blind",
    ),
    Hook(
        "recompile_reasons",
        CONVERT_FRAME,
        "get_and_maybe_log_recompilation_reasons",
        "recompiles are seen only through torch's metrics, with one reason each",
    ),
    Hook(
        "size_conditions",
        SYMBOLIC_SHAPES,
        "ShapeEnv._log_guard",
        "the line that made a dynamic size a constant",
    ),
    Hook(
        "size_constants",
        SYMBOLIC_SHAPES,
        "ShapeEnv._set_replacement",
        "which dynamic sizes became constants, and where",
    ),
    Hook(
        "guard_managers",
        GUARDS,
        "CheckFunctionManager.__init__",
        "user lines of guards, instance tests and armed guards",
    ),
    Hook(
        "cache_entries",
        "torch._C._dynamo.eval_frame",
        "_debug_get_cache_entry_list",
        "armed guards after a step",
    ),
    Hook(  # 2.7 calls it without arguments
        "compile_callback",
        "torch._dynamo.callback",
        "callback_handler.run_start_callbacks",
        "the live view cannot say that a compile is running",
    ),
    Hook(
        "compiled_calls",
        EVAL_FRAME,
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
        "torch.autograd.variable",
        "Variable._execution_engine",
        "the backward phase of steps",
    ),
    Hook("saves", "torch.serialization", "_save", "the time of torch.save as a checkpoint"),
    Hook(  # 2.7 has it as a function of the module
        "graph_breaks",
        SYMBOLIC_CONVERT,
        "InstructionTranslatorBase.log_graph_break|log_graph_break",
        "graph breaks",
    ),
    Hook(
        "failed_frames",
        CONVERT_FRAME,
        "format_error_msg",
        "frames that Dynamo gives up because of an error, and runs eager",
    ),
    Hook(
        "recompile_limits",
        CONVERT_FRAME,
        "exceeds_recompile_limit",
        "torch's message that a frame reached the recompile limit",
    ),
    Hook(
        "log_init",
        LOGGING,
        "_init_logs",
        "the trace is cleaned of secrets only up to a call of torch._logging.set_logs",
    ),
    Hook("reset", DYNAMO, "reset", "torch._dynamo.reset(): compile ids may be mixed up"),
    Hook(
        "compile_requests",
        DYNAMO,
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


def get_imported(module: str) -> Any | None:
    """Get a module, if the target has imported it; it is never imported here."""
    return sys.modules.get(module)


def lookup(module: Any, path: str) -> Any | None:
    """Look up what a dotted path below a module names; None where there is no such thing."""
    value = module
    for part in path.split("."):
        value = getattr(value, part, None)
        if value is None:
            return None
    return value


def is_available(hook: Hook) -> bool | None:
    """True if the name exists; None while its module is not imported."""
    module = get_imported(hook.module)
    if module is None:
        return None
    return any(lookup(module, path) is not None for path in hook.attribute.split("|"))


def probe() -> list[tuple[str, bool, str]]:
    """List (hook, available, what is lost) for every private name. Imports torch and Dynamo: for
    `compilediag doctor` and for tests, never for a run."""
    rows: list[tuple[str, bool, str]] = []
    for hook in HOOKS:
        try:
            importlib.import_module(hook.module)
            ok = bool(is_available(hook))
        except ImportError:
            ok = False
        rows.append((hook.name, ok, hook.lost))
    return rows


def replace_attribute(owner: Any, name: str, wrapper: Any) -> Remover:
    """Put `wrapper` in place and return what undoes it, unless somebody wrapped it again."""
    # Invariant: removers of one name run in reverse order of the calls. One that runs too early
    # does nothing, and the later one puts its wrapper back.
    descriptor: Any = vars(owner).get(name) if isinstance(owner, type) else None
    # A static or class method is put back as its descriptor: `getattr` gives what is bound by it.
    static = type(descriptor) in (staticmethod, classmethod)
    original = descriptor if static else getattr(owner, name)
    setattr(owner, name, staticmethod(wrapper) if static else wrapper)

    def restore() -> None:
        if getattr(owner, name) is wrapper:
            setattr(owner, name, original)

    return restore


def call_beside(
    owner: Any,
    name: str,
    *,
    before: Callable[..., None] | None = None,
    after: Callable[..., None] | None = None,
    at_end: Callable[[], None] | None = None,
) -> Remover | None:
    """Call `before` with the arguments of each call of `owner.name`, `after` with what it returned
    and the arguments, and `at_end()` also of one that raises; None where there is no such function.
    """
    # Invariant: neither listener raises, which would reach the user's compile. One that does not
    # take `*_` and `**__` raises as soon as a torch passes one argument more.
    original = getattr(owner, name, None)
    if original is None:
        return None

    @functools.wraps(original)
    def call_with_listeners(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before(*args, **kwargs)
        try:
            with hide_own_frame:
                result = original(*args, **kwargs)
        finally:
            if at_end is not None:
                at_end()
        if after is not None:
            after(result, *args, **kwargs)
        return result

    return replace_attribute(owner, name, call_with_listeners)


def subscribe(listeners: list[Any], listener: Any) -> Remover:
    """Add a listener; returns what removes it."""
    listeners.append(listener)

    def remove() -> None:
        if listener in listeners:
            listeners.remove(listener)

    return remove
