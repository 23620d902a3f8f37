"""`drive`: a loop that the harness can lengthen and shorten."""

from __future__ import annotations

import contextlib

import pytest
from step_sources import NoOptimizers

from compilediag_harness.base.process_options import VARIABLE
from compilediag_harness.base.session import Session
from compilediag_harness.steps import step_hooks
from compilediag_harness.steps.step_detection import StepSource
from compilediag_harness.steps.steps import drive
from compilediag_harness.wire import Event, StepsEnded


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> tuple[StepSource, list[Event]]:
    """A session that counts steps, without torch."""
    events: list[Event] = []
    one = StepSource(Session(events.append, origin=0.0), NoOptimizers(training=True), 0.0)
    monkeypatch.setattr(step_hooks, "_active", (one,))
    return one, events


def test_it_calls_the_function_once_a_step() -> None:
    """With the number of the step; the answer is how often."""
    called: list[int] = []
    assert drive(called.append, steps=3) == 3
    assert called == [0, 1, 2]
    assert drive(called.append, steps=0) == 0


def test_the_run_decides_the_number_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """`compilediag run --steps N` lengthens and shortens the loop."""
    monkeypatch.setenv(VARIABLE, '{"steps": 5}')
    assert drive(lambda _: None, steps=3) == 5
    assert drive(lambda _: None, steps=60) == 5


def test_a_negative_number_is_refused() -> None:
    """In one sentence, before anything ran."""
    with pytest.raises(ValueError, match="0 or more"):
        drive(lambda _: None, steps=-1)


def test_each_call_is_a_step(source: tuple[StepSource, list[Event]]) -> None:
    """Also when an optimizer steps in it, once or several times."""
    one, events = source

    def train(_: int) -> None:
        for at in (0.0, 1.0):
            one.optimizer_began(at)
            one.optimizer_ended(1, at, at)

    drive(train, steps=4)
    one.finish(9.0)
    found = [event for event in events if isinstance(event, StepsEnded)]
    assert [event.source for event in found] == ["step()"] * len(found)
    assert sum(len(event.ends) for event in found) == 4


def test_marks_of_the_function_are_not_doubled(source: tuple[StepSource, list[Event]]) -> None:
    """A function that calls `step()` itself marks its own steps."""
    one, _ = source
    drive(lambda _: step_hooks.step(), steps=4)
    assert one.clock.session.step == 4


def test_a_limit_does_not_cut_what_follows(
    monkeypatch: pytest.MonkeyPatch, source: tuple[StepSource, list[Event]]
) -> None:
    """With `--steps N` the loop ends by itself, and the lines after it run."""
    monkeypatch.setenv(VARIABLE, '{"steps": 2}')
    monkeypatch.setattr(step_hooks, "step_limit", 2)
    assert drive(lambda _: None) == 2


def test_a_limit_stops_a_plain_loop(
    monkeypatch: pytest.MonkeyPatch, source: tuple[StepSource, list[Event]]
) -> None:
    """Like `sys.exit(0)` after the last step allowed: `except Exception` lets it pass."""
    monkeypatch.setattr(step_hooks, "step_limit", 3)
    done: list[int] = []

    def train() -> None:
        for number in range(10):
            done.append(number)
            with contextlib.suppress(Exception):  # as a careful training loop may
                step_hooks.step()

    with pytest.raises(SystemExit) as stopped:
        train()
    assert (stopped.value.code, done) == (0, [0, 1, 2])
