"""The phases of a compile as torch times them: `dynamo_timed` of every part, nested."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from compilediag_harness.torch_internals.torch_names import (
    UTILS,
    Remover,
    loaded,
    lookup,
    replace_with,
)

PhaseListener = Callable[[str, int], None]
"""Called with a phase's name and the time in nanoseconds, in the thread that compiles."""


def on_phases(began: PhaseListener, ended: PhaseListener) -> tuple[Remover, ...]:
    """Calls the listeners when a timed part of a compile begins and ends; they must not raise.
    Empty where this torch times nothing."""
    # Every `dynamo_timed` reports to this one logger, whether or not anything is logged.
    logger = lookup(loaded(UTILS), "ChromiumEventLogger")
    removers = [
        _before(logger, name, listener)
        for name, listener in (("log_event_start", began), ("log_event_end", ended))
        if callable(getattr(logger, name, None))
    ]
    return tuple(removers) if len(removers) == 2 else ()


def _before(logger: Any, name: str, listener: PhaseListener) -> Remover:
    original = getattr(logger, name)

    @functools.wraps(original)
    def wrapper(self: Any, event_name: Any, time_ns: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(event_name, str) and isinstance(time_ns, int):
            listener(event_name, time_ns)
        return original(self, event_name, time_ns, *args, **kwargs)

    return replace_with(logger, name, wrapper)
