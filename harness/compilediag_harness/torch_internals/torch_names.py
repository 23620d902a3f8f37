"""torch's private names that we build on, and what is lost when one is missing.

Nothing here or in the other `torch_*.py` imports a torch module that the target has not imported:
names are looked up in `sys.modules` (importing `torch._dynamo` early can change what a program
compiles). Every function answers None, an empty value or False where this torch has no such name;
it never raises for that. Checked against torch 2.7.1, 2.13.0 and 2.15.0 by
tests/torch/test_torch_api.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
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
    Hook("saves", "torch.serialization", "_save", "the time of torch.save as a checkpoint"),
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
    Hook("reset", "torch._dynamo", "reset", "torch._dynamo.reset(): compile ids may be mixed up"),
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


def lookup(module: Any, path: str) -> Any | None:
    """What a dotted path below a module names; None where there is no such thing."""
    value = module
    for part in path.split("."):
        value = getattr(value, part, None)
        if value is None:
            return None
    return value


def available(hook: Hook) -> bool | None:
    """Whether the name exists; None while its module is not imported."""
    module = loaded(hook.module)
    return None if module is None else lookup(module, hook.attribute) is not None


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


def replace_with(owner: Any, name: str, wrapper: Any) -> Remover:
    """Puts `wrapper` in place and returns what undoes it, unless somebody wrapped it again."""
    original = getattr(owner, name)
    setattr(owner, name, wrapper)

    def restore() -> None:
        if getattr(owner, name) is wrapper:
            setattr(owner, name, original)

    return restore
