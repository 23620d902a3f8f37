"""Where the program entered what was compiled, from the stack in the record of its start.

torch leaves the innermost calls of that stack out, one or two of them not its own: the call of a
compiled function is missing, that of a compiled module, which lies further out, is not. So a call
counts only where that into compiled code is seen below it.
"""

from __future__ import annotations

from collections.abc import Sequence

from compilediag.readers.torch_trace.metadata import StackEntry, short_text, text_of
from compilediag.timeline.ownership import ownership_of
from compilediag_harness.wire import UserCall, resumed_function

_ENTRY = "/torch/_dynamo/eval_frame.py"
_CALL_CHARS = 500
_TYPED = ("<stdin", "<ipython", "<string>")
"""Code of the program's own that has no file; other names like these are of generated code."""

Call = tuple[str, StackEntry]
"""A call with the name of its file."""


def entered(calls: Sequence[Call]) -> tuple[UserCall | None, str]:
    """The innermost call of the program's own among `calls`, the outermost of which is first, that
    is seen to enter compiled code; or the thread, where there is none."""
    main = _main_file(calls)
    below = False
    for file, call in reversed(calls):
        below = below or file.endswith(_ENTRY)
        if below and file and (file == main or _is_own(file)):
            function = short_text(call.function)
            text = (text_of(call.text, _CALL_CHARS) or "").strip()
            return UserCall(file, call.line, resumed_function(function) or function, text), ""
    return None, _thread(calls) if below else ""


def _is_own(file: str) -> bool:
    return ownership_of(file) == "user" and (not file.startswith("<") or file.startswith(_TYPED))


def _main_file(calls: Sequence[Call]) -> str | None:
    """The program's file where `python -m` ran it."""
    for file, call in calls:
        if "runpy" not in file:
            return file if call.function == "<module>" else None
    return None


def _thread(calls: Sequence[Call]) -> str:
    for file, call in calls:
        if not file.endswith("/threading.py"):
            name = "/".join(file.split("/")[-2:])
            return f"a thread ({short_text(name)}:{call.line} in {short_text(call.function)})"
    return ""
