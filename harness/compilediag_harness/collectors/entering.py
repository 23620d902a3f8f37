"""Where the program entered what torch is compiling or recording in this thread right now."""

from __future__ import annotations

import os
import sys
import threading
import types

from compilediag_harness.base.session import Session
from compilediag_harness.blame.user_calls import user_call
from compilediag_harness.torch_internals import torch_compiles
from compilediag_harness.wire import UserCall


def entered(session: Session) -> tuple[UserCall | None, str]:
    """The innermost call of the program's own; or, where this thread has none, what the thread is.
    Never raises."""
    try:
        return _entered()
    except Exception as error:
        session.fault("the line that entered compiled code", error)
        return None, ""


def _entered() -> tuple[UserCall | None, str]:
    compiled = torch_compiles.frame_being_compiled()
    here: types.FrameType = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    found = user_call(compiled, here)
    if found is None and (waiting := torch_compiles.frame_waiting_for_backward()) is not None:
        found = user_call(None, waiting)
    return found, "" if found is not None else _thread(here)


def _thread(frame: types.FrameType) -> str:
    """A thread by its name and its first call, which `threading` itself does not count as."""
    while frame.f_back is not None:
        if frame.f_back.f_code.co_filename == threading.__file__:
            break
        frame = frame.f_back
    code = frame.f_code
    file = "/".join(code.co_filename.split(os.sep)[-2:])
    where = f"{file}:{frame.f_lineno} in {code.co_name}"
    return f"thread {threading.current_thread().name} ({where})"
