"""torch's own logging: its registry and state, and what its records leave out."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from compilediag_harness.torch_internals.torch_names import (
    LOGGING,
    Remover,
    call_after,
    loaded,
    replace_with,
)


def log_internals() -> tuple[Any, Any] | None:
    """torch's (log_registry, log_state), None where they are not as expected."""
    # `torch._logging` has no public way to list the loggers or to enable an artifact for them.
    internal = loaded(LOGGING)
    registry, state = getattr(internal, "log_registry", None), getattr(internal, "log_state", None)
    if not hasattr(registry, "get_log_qnames") or not hasattr(state, "enable_artifact"):
        return None
    return registry, state


def first_line_of_skipped_frame(name: str) -> int:
    """The first line of the frame called `name` that convert_frame logs about right now, read from
    the caller's local `frame`; 0 when it is not there."""
    # The message names function and file only; `convert_frame` has the frame in a local variable
    # some calls above the handler, the depth of `logging` in between.
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
    configure = getattr(loaded(LOGGING), "configure_artifact_log", None)
    if configure is not None:
        configure(logger)


def on_artifact_logger(callback: Callable[[Any], None]) -> Remover:
    """Calls `callback(logger)` after torch made an artifact logger, or configured it anew."""
    internal = loaded(LOGGING)
    original = getattr(internal, "configure_artifact_log", None)
    if original is None:
        return lambda: None

    @functools.wraps(original)
    def configure(log: Any) -> None:
        original(log)
        callback(log)

    return replace_with(internal, "configure_artifact_log", configure)


def guard_lines_need_logger() -> bool:
    """Whether this torch (2.7, 2.8) notes the user's line of a guard only while it logs guards."""
    version = str(getattr(loaded("torch"), "__version__", "")).split(".")
    return version[:1] == ["2"] and version[1:2] in (["7"], ["8"])


def torch_formatter() -> Any | None:
    """The formatter of torch's own terminal output (time, process, compile id, artifact)."""
    return getattr(loaded(LOGGING), "DEFAULT_FORMATTER", None)


def trace_handler(folder: str) -> Any | None:
    """The handler that writes torch's structured trace, where it writes into `folder`."""
    handler = getattr(loaded(LOGGING), "LOG_TRACE_HANDLER", None)
    written = getattr(handler, "root_dir", None)
    return handler if written and os.path.realpath(written) == os.path.realpath(folder) else None


def on_logs_initialised(callback: Callable[[], None]) -> Remover | None:
    """Calls `callback` after torch set its loggers up anew (`set_logs`, re-initialisation)."""
    return call_after(loaded(LOGGING), "_init_logs", callback)
