"""What a call of a compiled callable returns, read when its wrapper has put everything back and is
about to return it."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from compilediag_harness.torch_internals.torch_open_calls import this_thread

RESULT = "result"
"""The local in which the wrapper of torch 2.13 and later keeps what it returns."""


class Returning:
    """An outermost compiled call that begins in this thread."""

    def __init__(self) -> None:
        self._frame = this_thread.open[-1].frame
        self._error = sys.exc_info()[1]

    def read(self, callback: Callable[[Any], None]) -> bool:
        """Calls `callback(result)` now or when the wrapper returns. For a listener of the end of
        the call. False where the call raised, or what it returns cannot be seen."""
        frame = self._frame
        if not _is_called_from(frame) or sys.exc_info()[1] is not self._error:
            return False
        if RESULT in frame.f_code.co_varnames:
            names = frame.f_locals
            if RESULT not in names:
                return False
            callback(names[RESULT])
            return True
        return _at_return(frame, callback)


def is_outermost() -> bool:
    """Whether the compiled call that begins in this thread is inside no other: under a stance that
    compiles nothing, calls that a compiled function makes begin as those from eager code do."""
    return sum(call.key != 0 for call in this_thread.open) == 1


def _is_called_from(frame: types.FrameType) -> bool:
    """Whether `frame` is the innermost of torch's wrappers."""
    caller: types.FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while caller is not None and caller is not frame:
        if caller.f_code is frame.f_code:
            return False
        caller = caller.f_back
    return caller is frame


def _at_return(frame: types.FrameType, callback: Callable[[Any], None]) -> bool:
    """By a profile function that is there for the wrapper's last instructions alone: a value that
    is about to be returned can be seen in no other way."""
    if sys.getprofile() is not None:
        return False
    outside = frame.f_back

    def profile(where: types.FrameType, event: str, value: Any) -> None:
        if event == "return" and where in (frame, outside):
            sys.setprofile(None)
            if where is frame:
                callback(value)

    sys.setprofile(profile)
    return True
