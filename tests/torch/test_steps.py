"""Steps found in real programs, and our hooks unseen by Dynamo."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from step_sources import counting_steps
from torch._dynamo import utils as dynamo_utils

from compilediag.timeline.process import unpack_batches
from compilediag_harness.base.session import Session
from compilediag_harness.steps import steps
from compilediag_harness.user_api.spans import span
from compilediag_harness.wire import Event, SpanEnded, StepsEnded


@pytest.fixture
def session() -> Iterator[tuple[Session, list[Event]]]:
    with counting_steps() as session:
        yield session


def told(session: tuple[Session, list[Event]]) -> list[StepsEnded]:
    """The batches, after the session has finished."""
    steps.finish(session[0])
    batches = [event for event in session[1] if isinstance(event, StepsEnded)]
    assert sum(len(batch.ends) for batch in batches) == session[0].step
    return batches


def ended(session: tuple[Session, list[Event]]) -> list[SpanEnded]:
    """The spans, after the session has finished."""
    return [event for event in unpack_batches(session[1]) if isinstance(event, SpanEnded)]


def make() -> tuple[Any, Any]:
    model = torch.nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def test_an_optimizer_that_raises_passes_through(session: tuple[Session, list[Event]]) -> None:
    """The user's exception is the user's; the next step counts again."""
    model, optimizer = make()

    def closure() -> float:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        optimizer.step(closure)
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    assert told(session)[0].ends
    assert session[0].step == 1


def test_nothing_is_counted_after_uninstall() -> None:
    """The hooks stay in torch, and do nothing."""
    events: list[Event] = []
    one = Session(events.append)
    steps.install(one, torch)
    steps.uninstall(one)
    _, optimizer = make()
    for _ in range(3):
        optimizer.step()
    steps.step()
    assert (one.step, events) == (0, [])


def test_our_functions_are_never_compiled_frames(session: tuple[Session, list[Event]]) -> None:
    """Below a compiled call Dynamo is offered every frame: it must not compile ours, and our marks
    must be made all the same."""
    handle = span("inside")
    dynamo_utils.clear_compilation_metrics()

    @torch.compile(backend="eager")
    def broken(x: Any) -> Any:
        try:
            torch._dynamo.graph_break()  # in a try block: the whole frame runs as it is
            with handle:
                y = x + 1
            steps.step()
        finally:
            torch._dynamo.graph_break()
        return y

    for _ in range(3):
        broken(torch.ones(2))
    assert [row.co_name for row in dynamo_utils.get_compilation_metrics()] == ["broken"]
    assert [batch.source for batch in told(session)] == ["step()"] * len(told(session))
    assert session[0].step == 3
    assert len(ended(session)) == 3
