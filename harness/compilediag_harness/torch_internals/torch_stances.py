"""The stance of `torch.compiler.set_stance`: whether compiled callables compile, or run eager."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

from compilediag_harness.source.source_locations import is_library
from compilediag_harness.torch_internals.torch_names import (
    EVAL_FRAME,
    Remover,
    loaded,
    lookup,
    replace_with,
)
from compilediag_harness.wire import Location

EAGER = frozenset(("force_eager", "eager_on_recompile"))
"""Stances under which no call compiles, and nothing is reported."""

_OURS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_set_at: Location | None = None


def stance() -> str | None:
    """The stance in force now."""
    known = lookup(loaded(EVAL_FRAME), "_stance.stance")
    return known if isinstance(known, str) else None


def eager_stance() -> tuple[str, Location | None] | None:
    """The stance in force, if it compiles nothing and the program set it; and the user's line that
    did, None where it was set before `watch_stances`."""
    known = stance()
    # A trial of `FixedShape` runs eager on purpose.
    ours = _set_at is not None and _set_at.file.startswith(_OURS)
    return None if known not in EAGER or ours else (known, _set_at)


def watch_stances() -> Remover | None:
    """Notes from now on where stances are set."""
    # `set_stance` imports the function by its name: it is replaced there, not where it is defined.
    decorators = loaded("torch._dynamo.decorators")
    original = getattr(decorators, "_set_stance", None)
    if original is None:
        return None

    @functools.wraps(original)
    def set_stance(chosen: Any) -> Any:
        global _set_at
        before = original(chosen)
        _set_at = _calling_line()
        return before

    return replace_with(decorators, "_set_stance", set_stance)


def _calling_line() -> Location | None:
    """The innermost line of the user's below `set_stance`."""
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return None
    return Location(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
