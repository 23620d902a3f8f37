"""A call made in C whose end is told, and that keeps no exception of a signal's handler from the
program.

Python runs the handlers of signals between two instructions of the main thread: of one that comes
while C code runs, at the first instruction after it. Where that is one of a finalizer, what the
handler raises is dropped, so that Ctrl-C in `loss.backward()` would have no effect.
"""

from __future__ import annotations

import _thread
import functools
import signal
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

_SPARE: signal.Signals | None = getattr(signal, "SIGRTMAX", None)
"""A signal that nobody sends, whose handler raises again what another one did."""


# A partial is called in C: no frame of ours is on the stack while the call runs, which torch's
# metrics and warnings would name; and the interpreter drops it right after the call.
class DroppedCall(functools.partial[Any]):
    """A call that nothing but its caller refers to, so that its end is when that drops it."""

    __slots__ = ("_waiting",)

    def tell_end(self, end: Callable[[], None]) -> None:
        """Call `end`, which must not refer to this call, when this is dropped."""
        self._waiting = _wait_for_drop(end)
        next(self._waiting)


def _wait_for_drop(end: Callable[[], None]) -> Generator[None, None, object]:
    # A generator that is dropped is ended by an exception at its `yield`: all of its instructions
    # before which a handler may run are in a `try`, unlike the first one of a finalizer.
    try:
        try:
            try:
                yield
            finally:
                time.monotonic()  # a handler that is due runs after each call of C code
        finally:
            end()
    except GeneratorExit:
        return None
    except BaseException as raised:
        # What is returned is dropped after the last instruction.
        return _raise_in_program(raised)


def _raise_in_program(raised: BaseException) -> object:
    """Make an object at whose drop the exception of a handler is raised; where that cannot be, one
    without effect."""
    made = raised.__traceback__
    if type(raised) is KeyboardInterrupt and made is not None and made.tb_next is None:
        # Python's own handler raised it, which may do so again: it does nothing else.
        return _run_handler_later(signal.SIGINT)
    spare = _SPARE
    if spare is None or threading.current_thread() is not threading.main_thread():
        return None
    former = signal.getsignal(spare)

    def raise_again(signum: int, _frame: object) -> None:
        signal.signal(signum, former)
        raise raised

    signal.signal(spare, raise_again)
    return _run_handler_later(spare)


def _run_handler_later(signum: signal.Signals) -> object:
    """Make an object at whose drop the handler of a signal is due, before the next instruction."""
    finalizer = staticmethod(functools.partial(_thread.interrupt_main, signum))
    return type("_Dropped", (), {"__del__": finalizer})()
