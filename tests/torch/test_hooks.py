"""The program's hooks: those behind `torch.compiler.disable`, and those of a compiled call."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from attached import watched as watching

import compilediag as cd
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


@torch.compiler.disable
def watched(_module: Any, _inputs: Any, _output: Any) -> None:
    pass


def test_a_hook_behind_disable_is_timed(session: tuple[Session, list[Event]]) -> None:
    """As every function behind it, by the phase of the step."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    model[1].register_forward_hook(watched)
    compiled = torch.compile(model, backend="aot_eager")
    for _ in range(3):
        compiled(torch.ones(2)).sum().backward()
    attach.finish(session[0])
    timeline = fold([session[1]])
    mine = [one for one in timeline.disabled_calls if one.function.function == "watched"]
    assert [(one.phase, one.count) for one in mine] == [("forward", 3)]


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


def double(module: Any, arguments: Any, result: Any) -> Any:
    return result * 2


def install(module: torch.nn.Module) -> None:
    torch._dynamo.graph_break()
    module.register_forward_hook(double)


class Installing(torch.nn.Module):
    """Registers a hook in its first call, as models of transformers that capture outputs do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.is_ready = torch.nn.Linear(2, 2), False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.is_ready:
            self.is_ready = True
            torch._dynamo.graph_break()
            install(self.inner)
        return self.inner(x)


def test_a_hook_that_a_compiled_call_registers_itself_is_not_ignored() -> None:
    torch._dynamo.reset()
    net, x = Installing(), torch.ones(1, 2)
    compiled = torch.compile(net, backend="eager")
    with cd.watch() as seen:
        results = [compiled(x) for _ in range(3)]
    assert all(torch.equal(result, net(x)) for result in results)
    assert "CD119" not in {finding.rule for finding in seen.findings}
