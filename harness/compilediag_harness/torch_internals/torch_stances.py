"""The stance of `torch.compiler.set_stance`: whether compiled callables compile, or run eager."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

from compilediag_harness.torch_internals.dynamo_skip import out_of_tracebacks
from compilediag_harness.torch_internals.torch_names import (
    EVAL_FRAME,
    Remover,
    loaded,
    lookup,
    replace_with,
)


def stance() -> str | None:
    """The stance in force now."""
    known = lookup(loaded(EVAL_FRAME), "_stance.stance")
    return known if isinstance(known, str) else None


def on_stance_set(callback: Callable[[str, types.FrameType], None]) -> Remover | None:
    """Calls `callback(stance, frame)` after each stance that is set, with the frame that set it: of
    `set_stance` itself."""
    # `set_stance` imports the function by its name: it is replaced there, not where it is defined.
    decorators = loaded("torch._dynamo.decorators")
    original = getattr(decorators, "_set_stance", None)
    if original is None:
        return None

    @functools.wraps(original)
    def set_stance(chosen: Any) -> Any:
        with out_of_tracebacks:
            before = original(chosen)
        callback(str(chosen.stance), sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
        return before

    return replace_with(decorators, "_set_stance", set_stance)
