"""The end of a call made in C: told in any case, and no exception of a handler is lost by it."""

import _thread
import signal
import traceback

import pytest

from compilediag_harness.base.dropped_call import DroppedCall


def call_with(signum: signal.Signals) -> list[str]:
    """Call C code in which a signal comes; what was told."""
    told: list[str] = []

    def make_call() -> DroppedCall:
        call = DroppedCall(_thread.interrupt_main, signum)
        call.tell_end(lambda: told.append("end"))
        return call

    try:
        make_call()()
        told.append("returned")
    except BaseException as raised:
        told.append(f"{type(raised).__name__} {raised}".strip())
        told.extend(row.name for row in traceback.extract_tb(raised.__traceback__))
    return told


def test_ctrl_c_in_the_call_reaches_the_program() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert call_with(signal.SIGINT) == ["end", "KeyboardInterrupt", "call_with"]
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("raises", [True, False])
def test_a_handler_of_the_program_is_called_once(raises: bool) -> None:
    called: list[int] = []

    def handle(signum: int, _frame: object) -> None:
        called.append(signum)
        if raises:
            raise TimeoutError("too long")

    spare = signal.getsignal(signal.SIGRTMAX)
    before = signal.signal(signal.SIGALRM, handle)
    try:
        told = call_with(signal.SIGALRM)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert called == [signal.SIGALRM]
    expected = ["TimeoutError too long", "call_with"] if raises else ["returned"]
    assert told[: 1 + len(expected)] == ["end", *expected]
    assert signal.getsignal(signal.SIGRTMAX) == spare


def test_the_end_is_told_where_the_call_raises() -> None:
    told: list[str] = []
    call = DroppedCall(int, "x")
    call.tell_end(lambda: told.append("end"))
    with pytest.raises(ValueError, match="invalid literal"):
        call()
    assert not told
    del call
    assert told == ["end"]
