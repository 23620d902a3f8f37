"""torch's compile messages, taken from the functions that log them.

Those run whatever is logged, so that no logger of torch's is ever touched."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from compilediag_harness.torch_internals.torch_names import (
    CONVERT_FRAME,
    LOGGING,
    SYMBOLIC_CONVERT,
    Remover,
    Removers,
    call_beside,
    get_imported,
    lookup,
    replace_attribute,
)

CUDAGRAPH_UTILS = "torch._inductor.cudagraph_utils"


def watch_graph_breaks(callback: Callable[[dict[str, Any]], None]) -> Remover | None:
    """Call `callback(given)` after torch reported a graph break, with the arguments of its report,
    for `format_break_report`."""
    module = get_imported(SYMBOLIC_CONVERT)
    owner = lookup(module, "InstructionTranslatorBase")
    if not hasattr(owner, "log_graph_break"):  # 2.7: a function of the module
        owner = module
    original = getattr(owner, "log_graph_break", None)
    if original is None:
        return None
    signature = inspect.signature(original)

    @functools.wraps(original)
    def log_graph_break(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        # Read before the call, which sets it, and which logs nothing where it is set. Not in 2.7.
        already_logged = getattr(given.get("exc"), "logged", False)
        result = original(*args, **kwargs)
        if not already_logged:
            callback(given)
        return result

    return replace_attribute(owner, "log_graph_break", log_graph_break)


def format_break_report(given: dict[str, Any]) -> tuple[str, str]:
    """Format what `log_graph_break` logs of its arguments, in two parts and torch's own words: the
    lines with place and reason, and the user's stack."""
    stack = given.get("user_stack") or getattr(given.get("exc"), "real_stack", None)
    if stack is None:
        guards: Any = get_imported("torch._guards")
        stack = guards.TracingContext.extract_stack()
    translator, code_options = given.get("self"), given["code_options"]
    config = get_imported("torch._dynamo.config")
    if getattr(config, "nested_graph_breaks", False) and getattr(translator, "parent", None):
        code: Any = given["self"].f_code
        file, line = code.co_filename, given["self"].lineno or code.co_firstlineno
    elif stack:
        file, line = stack[-1].filename, stack[-1].lineno
    else:  # the first instruction
        file, line = code_options["co_filename"], code_options["co_firstlineno"]
    head = f"Graph break in user code at {file}:{line}\nGraph Break Reason: {given['reason']}"
    exc: Any = get_imported("torch._dynamo.exc")
    whole = exc.collapse_resume_frames(exc.get_stack_above_dynamo() + stack)
    return head, "\nUser code traceback:\n" + "".join(traceback.format_list(whole))


def watch_failed_frames(callback: Callable[[BaseException, Any], None]) -> Remover | None:
    """Call `callback(error, code)` when Dynamo gives a frame up because of an error that does not
    reach the program."""

    def report_failure(_: str, error: BaseException, code: Any, *__: Any, **___: Any) -> None:
        callback(error, code)

    # `convert_frame` imports the function by its name: it is replaced there.
    return call_beside(get_imported(CONVERT_FRAME), "format_error_msg", after=report_failure)


def format_skip_report(error: BaseException, code: Any) -> str | None:
    """Format torch's report of a graph break by which a whole frame is skipped and that was not
    reported before; None where the error is no such break."""
    exc: Any = get_imported("torch._dynamo.exc")
    if not isinstance(error, (exc.Unsupported, exc.UserError)) or getattr(error, "logged", False):
        return None
    stack = getattr(error, "real_stack", None)
    # At the recompile limit there is no compile, and torch reports no break.
    if stack is None or not hasattr(error, "compile_id"):
        return None
    return (
        "Graph break: torch.compile cannot properly resume from this graph break, which results in "
        f"a skip.\ntorch.compile will skip tracing the frame {code.co_name} ({code.co_filename} "
        f"line {code.co_firstlineno}) and fall back to eager.\n"
        f"The graph break occurred in the following user code:\n"
        + "".join(traceback.format_list(stack))
    )


def watch_skipped_frames(callback: Callable[[Any, str], None]) -> Remover | None:
    """Call `callback(code, reason)` for each frame that Dynamo does not try to compile; None on a
    torch that only logs them (2.7)."""

    def report_skip(reason: Any, frame: Any, *_: Any, **__: Any) -> None:
        callback(frame.f_code, str(reason))

    return call_beside(get_imported(CONVERT_FRAME), "add_skip_reason", before=report_skip)


def watch_recompile_limit(callback: Callable[[str, Any], None]) -> Remover | None:
    """Call `callback(limit, value)` when a frame has reached a limit, with the name of torch's
    option and its value, while the frame is being compiled."""

    def report_limit(result: tuple[bool, str], *_: Any, **__: Any) -> None:
        exceeded, limit = result
        if exceeded:
            callback(limit, getattr(get_imported("torch._dynamo.config"), limit, None))

    return call_beside(get_imported(CONVERT_FRAME), "exceeds_recompile_limit", after=report_limit)


def watch_cudagraph_skips(callback: Callable[[str], None]) -> Removers:
    """Call `callback(message)` each time torch says why it runs something without CUDA graphs."""
    name = "log_cudagraph_skip_and_bump_counter"

    def report_skip(message: Any, *_: Any, **__: Any) -> None:
        callback(str(message))

    # cudagraph_trees.py, output_code.py and compile_fx.py import it by name, in 2.7 and 2.13. Those
    # that do so later get our wrapper, and keep it when it is taken out here.
    # Modules that were imported before we came have the function under its name.
    modules = list(sys.modules.items())
    owners = [owner for path, owner in modules if path.startswith("torch.") and name in vars(owner)]
    return [call_beside(owner, name, before=report_skip) for owner in owners]


def get_torch_formatter() -> Any | None:
    """Get the formatter of torch's own terminal output (time, process, compile id, artifact)."""
    return getattr(get_imported(LOGGING), "DEFAULT_FORMATTER", None)


def find_trace_handler(folder: str) -> Any | None:
    """Find the handler that writes torch's structured trace; None where it writes elsewhere than
    into `folder`, or there is none."""
    # torch makes it once; each `_init_logs` gives it a formatter anew, and ours is gone then.
    handler = getattr(get_imported(LOGGING), "LOG_TRACE_HANDLER", None)
    written = getattr(handler, "root_dir", None)
    return handler if written and os.path.realpath(written) == os.path.realpath(folder) else None


def watch_log_setup(callback: Callable[[], None]) -> Remover | None:
    """Call `callback` after torch set its loggers up anew (`set_logs`, re-initialisation)."""
    return call_beside(get_imported(LOGGING), "_init_logs", at_end=callback)
