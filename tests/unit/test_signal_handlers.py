"""What a handler of the program's raises while a hook of ours runs is the program's."""

import functools
import signal
from collections.abc import Callable, Generator
from typing import Any

import pytest

from compilediag_harness.base.session import Session
from compilediag_harness.base.signal_handlers import is_raised_by_handler


def limit_time(_signum: int, _frame: object) -> None:
    raise TimeoutError("too long")


class Limit:
    def __call__(self, signum: int, frame: object) -> None:
        limit_time(signum, frame)

    def handle(self, signum: int, frame: object) -> None:
        limit_time(signum, frame)


HANDLERS = (limit_time, Limit(), Limit().handle, functools.partial(limit_time))


@pytest.fixture(params=HANDLERS, ids=["function", "object", "method", "partial"])
def alarm(request: pytest.FixtureRequest) -> Generator[None]:
    before = signal.signal(signal.SIGALRM, request.param)
    yield
    signal.signal(signal.SIGALRM, before)


def raise_alarm(*_: Any) -> None:
    signal.raise_signal(signal.SIGALRM)


def catch(work: Callable[[], object]) -> Exception:
    with pytest.raises(TimeoutError) as raised:
        work()
    return raised.value


@pytest.mark.usefixtures("alarm")
def test_a_time_limit_of_the_program_ends_its_work_in_our_hooks() -> None:
    session = Session(raise_alarm)
    assert is_raised_by_handler(catch(raise_alarm))
    catch(lambda: session.emit_in_step(lambda *_: None))
    assert session.records_dropped == 1

    def catch_faults() -> None:
        with session.catch_faults("somewhere"):
            raise_alarm()

    catch(catch_faults)


@pytest.mark.usefixtures("alarm")
def test_a_fault_of_ours_does_not_reach_it() -> None:
    events: list[Any] = []
    session = Session(events.append)
    with session.catch_faults("somewhere"):
        raise TimeoutError("our own")
    assert [event.where for event in events] == ["somewhere"]
