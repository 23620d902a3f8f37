"""Brief steps of real programs: torch's own functions are back in unsampled steps, and nothing
that must be known of an unsampled step is lost. The clock is the test's own."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._dynamo import eval_frame

from compilediag_harness import attach
from compilediag_harness.base.session import Session
from compilediag_harness.steps import step_clock, steps
from compilediag_harness.steps.step_detection import CALL, EXPLICIT, OPTIMIZER
from compilediag_harness.torch_internals import torch_calls
from compilediag_harness.wire import (
    CompiledCallsMade,
    DisabledCallsEnded,
    Event,
    Recompiled,
    StepsEnded,
)

pytestmark = [pytest.mark.filterwarnings("ignore")]


FIRST = 32
STEPS = 400
READING_S = 0.0005
"""Seconds from one reading of the clock to the next: at most 500 steps in a row are unsampled."""


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Event]]:
    """The events of a session whose first steps are few."""
    readings = itertools.count(1)
    torch._dynamo.reset()
    monkeypatch.setattr(steps, "_monotonic", lambda: next(readings) * READING_S)
    monkeypatch.setattr(step_clock, "FIRST_STEPS", FIRST)
    monkeypatch.setattr(step_clock, "RETRY_STEPS", FIRST // 2)
    monkeypatch.setattr(step_clock, "UNSAMPLED_S", 0.05)
    monkeypatch.setattr(torch_calls, "_functions_disabled", False)  # by tests before this one
    events: list[Event] = []
    session = Session(events.append, origin=0.0)
    attach.install(session)
    yield events
    attach.uninstall(session)
    torch._dynamo.reset()


def finish(events: list[Event]) -> list[StepsEnded]:
    """The batches of steps, when the session has ended."""
    attach.finish(steps._active[-1].clock.session)
    return [event for event in events if isinstance(event, StepsEnded)]


def numbers(batches: list[StepsEnded], *, noted: bool) -> list[int]:
    """The steps that were unsampled, or sampled."""
    return [
        number
        for batch in batches
        if batch.noted is noted
        for number in range(batch.first, batch.first + len(batch.ends))
    ]


def ours() -> list[bool]:
    """Which of torch's two functions around a call are ours now."""
    return [
        getattr(eval_frame, name) is mine for name, (_, mine) in torch_calls._call_hooks.items()
    ]


def training() -> Callable[[int], Any]:
    """A training loop: `run(size)` is one step."""
    model = torch.compile(torch.nn.Linear(4, 1), backend="eager", dynamic=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def run(size: int) -> None:
        model(torch.ones(size, 4)).sum().backward()
        optimizer.step()

    return run


def inference() -> Callable[[int], Any]:
    """A loop of calls that nothing but the calls marks."""

    def double(x: Any) -> Any:
        return x * 2

    compiled = torch.compile(double, backend="eager", dynamic=False)
    return lambda size: compiled(torch.ones(size))


def marked() -> Callable[[int], Any]:
    """A loop with `step()`."""
    compiled = inference()

    def run(size: int) -> None:
        compiled(size)
        steps.step()

    return run


@pytest.mark.parametrize(
    ("program", "source", "while_noted"),
    [
        (training, OPTIMIZER, [False, False]),
        (inference, CALL, [True, False]),
        (marked, EXPLICIT, [False, False]),
    ],
)
def test_a_loop(told, program, source, while_noted) -> None:
    """Every step is reported once; most are unsampled, with torch's own functions in place; the
    calls of the sampled ones are reported, each in its step."""
    run = program()
    seen: list[list[bool]] = []
    for _ in range(STEPS):
        run(2)
        seen.append(ours() if steps._unsampled is not None else [])
    batches = finish(told)
    noted, watched = numbers(batches, noted=True), numbers(batches, noted=False)
    # A call ends a step with its begin, so that the last step ends with the session.
    assert sorted(noted + watched) == list(range(STEPS))
    assert {batch.source for batch in batches} == {source}
    assert len(noted) > STEPS / 2
    assert len(watched) > FIRST
    assert max(watched) > FIRST + 100
    assert [each for each in seen if each] == [while_noted] * len([each for each in seen if each])
    assert ours() == [True, True]
    forwards = [seconds for batch in batches if not batch.noted for seconds in batch.forward]
    assert len(forwards) == len(watched)
    assert all(seconds > 0.0 for seconds in forwards)
    calls = [at for event in told if isinstance(event, CompiledCallsMade) for at in event.at]
    assert len(watched) <= len(calls) <= len(watched) + 2 * len(batches)


@pytest.mark.parametrize("program", [training, inference, marked])
def test_a_recompile_in_an_unsampled_step(told, program) -> None:
    """It has the number of its step, and all its false guards."""
    run = program()
    for _ in range(FIRST + 20):
        run(2)
    before = torch._dynamo.utils.counters["frames"]["ok"]
    session = steps._unsampled._session
    run(3)
    asked = [event for event in told if isinstance(event, Recompiled)]
    assert [event.step for event in asked] == [FIRST + 20]
    assert asked[0].entries
    assert torch._dynamo.utils.counters["frames"]["ok"] == before + 1
    run(2)
    assert steps._unsampled is None
    assert session.step >= FIRST + 20


def test_a_second_session_watches(told: list[Event]) -> None:
    """`watch()` in a loop whose steps are unsampled sees every step from then on, and so does the
    session that was there before."""
    run = training()
    for _ in range(FIRST + 20):
        run(2)
    assert steps._unsampled is not None
    events: list[Event] = []
    second = Session(events.append, origin=0.0)
    attach.install(second)
    try:
        for _ in range(STEPS):
            run(2)
        assert steps._unsampled is None
    finally:
        own = finish(events)
        attach.uninstall(second)
    assert numbers(own, noted=True) == []
    assert len(numbers(own, noted=False)) == STEPS
    steps_of_first = finish(told)
    # The step in progress when the second came was not sampled from its begin.
    assert len(numbers(steps_of_first, noted=True)) == 21
    assert sorted(
        numbers(steps_of_first, noted=True) + numbers(steps_of_first, noted=False)
    ) == list(range(FIRST + 20 + STEPS))


def test_a_function_that_is_disabled_late(told: list[Event]) -> None:
    """Steps that are unsampled are sampled at once: its first call is counted."""
    run = training()
    for _ in range(FIRST + 20):
        run(2)
    assert steps._unsampled is not None
    metric = torch.compiler.disable(lambda x: x + 1)
    assert steps._unsampled is None
    for _ in range(FIRST + 50):
        run(2)
        metric(torch.ones(1))
    assert steps._unsampled is None
    finish(told)
    counts = [sum(one.counts) for one in told if isinstance(one, DisabledCallsEnded)]
    assert sum(counts) == FIRST + 50


def test_what_dynamo_disables_is_not_the_programs(told: list[Event]) -> None:
    """Dynamo puts every graph of a backend of the program's own behind `disable`."""

    def backend(graph: Any, _inputs: Any) -> Any:
        return graph.forward

    compiled = torch.compile(lambda x: x * 2, backend=backend)
    compiled(torch.ones(2))
    assert not torch_calls.has_disabled_functions()
