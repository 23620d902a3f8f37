"""Exceptions of the program's own handlers of signals, wherever they run: no faults of ours.

Python runs them between any two instructions of the main thread, those of our hooks among them. A
time limit that raises TimeoutError there ends the program's work, as in a plain run.
"""

from __future__ import annotations

import signal

from compilediag_harness.base.object_graph import get_code


def is_raised_by_handler(error: BaseException) -> bool:
    """True if a handler of a signal raised it, which the program has installed still."""
    installed = map(signal.getsignal, signal.valid_signals())
    codes = {get_code(handler) for handler in installed if callable(handler)} - {None}
    traceback = error.__traceback__ if codes else None
    while traceback is not None:
        if traceback.tb_frame.f_code in codes:
            return True
        traceback = traceback.tb_next
    return False
