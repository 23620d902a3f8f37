"""Keeps our wrappers out of the program's tracebacks: its errors read as in a plain run."""

from __future__ import annotations


def leave_out_this_frame(error: BaseException) -> None:
    """Takes the frame that caught `error` out of its traceback; a bare `raise` must follow, which
    does not put it back (CPython 3.11 and later; on 3.10 the frame stays)."""
    traceback = error.__traceback__
    if traceback is not None and traceback.tb_next is not None:
        error.__traceback__ = traceback.tb_next
