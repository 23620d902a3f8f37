"""The program's hooks on its compiled modules: found, told, and left as they are."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from attached import watched as watching
from torch._dynamo import utils

from compilediag.timeline.timeline import fold
from compilediag_harness import attach
from compilediag_harness.base.session import Session
from compilediag_harness.steps import disabled_calls
from compilediag_harness.wire import DisabledCallsEnded, Event

pytestmark = [pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def session() -> Iterator[tuple[Session, list[Event]]]:
    """A session with every collector."""
    with watching() as told:
        yield told.session, told


def traced(_module: Any, _inputs: Any, output: Any) -> Any:
    return output * 2


@torch.compiler.disable
def watched(_module: Any, _inputs: Any, _output: Any) -> None:
    pass


def gradient(value: Any) -> Any:
    return value * 2


def test_hooks_are_told_with_what_can_be_timed(session: tuple[Session, list[Event]]) -> None:
    """Each once, below the whole compiled module; those behind `disable` have times."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    model[0].register_forward_hook(traced)
    model[1].register_forward_hook(watched)
    model[1].weight.register_hook(gradient)
    compiled = torch.compile(model, backend="aot_eager")
    for _ in range(3):
        compiled(torch.ones(2)).sum().backward()
    attach.finish(session[0])
    timeline = fold([session[1]])
    told = {(one.kind, one.target, one.function.function, one.disabled) for one in timeline.hooks}
    assert told == {
        ("forward_hook", "0", "traced", False),
        ("forward_hook", "1", "watched", True),
        ("tensor_hook", "1.weight", "gradient", False),
    }
    assert len(timeline.hooks) == len(told)
    mine = [one for one in timeline.disabled_calls if one.function.function == "watched"]
    assert [(one.phase, one.count) for one in mine] == [("forward", 3)]


def test_the_hooks_stay_the_program_s_own(session: tuple[Session, list[Event]]) -> None:
    """A compiled frame is guarded on them: the objects in the tables are those registered, nothing
    recompiles, and the gradient is what it is without us."""
    model = torch.nn.Linear(2, 1, bias=False)
    model.register_forward_hook(traced)
    model.weight.register_hook(gradient)
    compiled = torch.compile(model, backend="eager")
    utils.clear_compilation_metrics()
    for _ in range(3):
        model.weight.grad = None
        compiled(torch.ones(2)).sum().backward()
    attach.finish(session[0])
    assert list(model._forward_hooks.values()) == [traced]
    assert list(model.weight._backward_hooks.values()) == [gradient]
    rows = [row for row in utils.get_compilation_metrics() if row.has_guarded_code]
    assert [row.compile_id for row in rows] == ["0/0"]
    assert model.weight.grad.tolist() == [[4.0, 4.0]]


def test_a_fork_leaves_calls_to_its_parent() -> None:
    """What was not written when the process forked is written by the parent, and only once."""
    events: list[Event] = []
    session = Session(events.append)

    def metric() -> None:
        return

    disabled_calls.install(session, lambda _began: "forward")
    try:
        disabled_calls._record_end(metric, 1.0, 2.0)
        disabled_calls.sinks.discard()
        disabled_calls._record_end(metric, 3.0, 3.5)
        disabled_calls.sinks.finish(session)
    finally:
        disabled_calls.uninstall(session)
    (told,) = events
    assert isinstance(told, DisabledCallsEnded)
    assert (told.counts, told.total_s) == ((1,), (0.5,))
