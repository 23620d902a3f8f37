"""A backward that the autograd engine runs in a thread of its own is entered where it is called."""

import _thread
import threading
from typing import Any

from compilediag_harness.base.session import Session
from compilediag_harness.blame.user_calls import find_user_call_or_thread
from compilediag_harness.wire import Event, UserCall

LIBRARY = """
def backward(entered, session, found, done):
    found.append(entered(session))
    done.set()
"""


def _in_an_engines_thread() -> tuple[UserCall | None, str]:
    """What is recorded in a thread that was not made in Python, none of whose calls is ours."""
    scope: dict[str, Any] = {"__name__": "library"}
    exec(compile(LIBRARY, "/venv/site-packages/library.py", "exec"), scope)
    found: list[tuple[UserCall | None, str]] = []
    done = threading.Event()
    faults: list[Event] = []
    _thread.start_new_thread(
        scope["backward"], (find_user_call_or_thread, Session(faults.append), found, done)
    )
    assert done.wait(60)
    assert not faults
    return found[0]


def _engine_run_backward() -> tuple[UserCall | None, str]:
    """Called as torch's function is, which waits for the threads of the engine."""
    return _in_an_engines_thread()


def test_the_call_that_waits() -> None:
    """The thread that waits in the engine's only call has the line."""
    call, thread = _engine_run_backward()
    assert (call.function, call.text) == ("_engine_run_backward", "_in_an_engines_thread()")
    assert thread == ""


def test_no_call_waits() -> None:
    """Then it is another thread: its name and its outermost call."""
    call, thread = _in_an_engines_thread()
    assert call is None
    assert "(site-packages/library.py:3 in backward)" in thread


def test_two_calls_wait() -> None:
    """Which of them it works for is not known: none."""
    begun, end = threading.Event(), threading.Event()

    def _engine_run_backward_of_another() -> None:
        begun.set()
        end.wait(60)

    code = _engine_run_backward_of_another.__code__.replace(co_name="_engine_run_backward")
    _engine_run_backward_of_another.__code__ = code
    other = threading.Thread(target=_engine_run_backward_of_another)
    other.start()
    begun.wait(60)
    try:
        call, thread = _engine_run_backward()
    finally:
        end.set()
        other.join()
    assert call is None
    assert thread
