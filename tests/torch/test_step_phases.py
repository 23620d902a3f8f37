"""Phases of steps in real programs, with a clock that only the program's own work moves.

Each part of a program says how long it takes: the figures are exact, on any machine.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from compilediag.timeline.timeline import Step, Timeline, fold
from compilediag_harness.base.session import Session
from compilediag_harness.steps import steps
from compilediag_harness.torch_internals import torch_calls
from compilediag_harness.user_api import spans
from compilediag_harness.user_api.spans import span
from compilediag_harness.wire import Event

pytestmark = [pytest.mark.filterwarnings("ignore")]


class Program:
    """A session, the clock, and parts of training programs that take a time of their own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events: list[Event] = []
        self.session = Session(self.events.append, origin=0.0)

    def takes(self, seconds: float) -> None:
        """Work of the program."""
        self.now += seconds

    def forward(self, seconds: float, *, grad: bool = True) -> Callable[[Any], Any]:
        """A compiled function that takes some time in eager code of its own."""

        @torch._dynamo.disable
        def work() -> None:
            self.takes(seconds)

        def function(x: Any) -> Any:
            work()
            return (x * 2).sum() if grad else x * 2

        return torch.compile(function, backend="eager")

    def loss(self, compiled: Callable[[Any], Any], backward: float) -> Any:
        """A loss whose backward takes some time."""
        loss = compiled(torch.ones(2, requires_grad=True))

        def hook(_: Any) -> None:
            self.takes(backward)

        loss.register_hook(hook)
        return loss

    def optimizer(self, seconds: float) -> Any:
        """An optimizer whose step takes some time, that of its closure apart."""
        takes = self.takes

        class Slow(torch.optim.Optimizer):
            def step(self, closure: Callable[[], Any] | None = None) -> None:
                takes(seconds)
                if closure is not None:
                    closure()

        return Slow([torch.nn.Parameter(torch.ones(1))], {})

    def batches(self, count: int, seconds: float) -> Any:
        """A data loader that takes some time for each batch, and as long to find its end."""
        takes = self.takes

        class Slow(torch.utils.data.Dataset[Any]):
            def __len__(self) -> int:
                return count

            def __getitem__(self, place: int) -> Any:
                takes(seconds)
                return torch.tensor(float(place))

        return torch.utils.data.DataLoader(Slow())

    def timeline(self) -> Timeline:
        """What was told, after the session has finished."""
        steps.finish(self.session)
        return fold([self.events])

    def steps(self) -> list[dict[str, float | None]]:
        """Phases of each step, rest included, after checking that they are the whole of it."""
        return [phases(step) for step in self.timeline().steps]


def phases(step: Step) -> dict[str, float | None]:
    measured = {
        "data_wait": step.data_wait_s,
        "forward": step.forward_s,
        "backward": step.backward_s,
        "optimizer": step.optimizer_s,
        "spans": step.spans_s,
    }
    known = sum(value or 0.0 for value in measured.values())
    assert known <= step.wall_s
    rest = step.wall_s - known
    assert math.isclose(known + rest, step.wall_s)
    return {**measured, "rest": rest}


def spent(*, rest: float, **known: float) -> dict[str, float | None]:
    """The phases of a step; those that are not named were not seen."""
    unseen = dict.fromkeys(("data_wait", "forward", "backward", "optimizer", "spans"))
    return {**unseen, **known, "rest": rest}


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    """A program whose clock is its own."""
    torch._dynamo.reset()
    made = Program()
    monkeypatch.setattr(steps, "_monotonic", lambda: made.now)
    monkeypatch.setattr(spans, "_monotonic_ns", lambda: round(made.now * 1e9))
    steps.install(made.session, torch)
    torch_calls.watch_compiled_calls()
    yield made
    steps.uninstall(made.session)
    torch._dynamo.reset()


def test_a_plain_loop(program: Program) -> None:
    """Each phase has what its part of the loop takes, and nothing is counted twice."""
    forward, optimizer = program.forward(8), program.optimizer(2)
    for _ in program.batches(3, seconds=1):
        program.takes(0.5)
        program.loss(forward, backward=4).backward()
        optimizer.step()
        program.takes(0.25)
    first, *later = program.steps()
    assert first == spent(data_wait=1, forward=8, backward=4, optimizer=2, rest=0.5)
    assert later == [{**first, "rest": 0.75}] * 2


def test_gradient_accumulation(program: Program) -> None:
    """A step has the phases of all its micro-batches."""
    forward, optimizer = program.forward(8), program.optimizer(2)
    for _ in range(3):
        for _ in range(4):
            program.loss(forward, backward=4).backward()
        optimizer.step()
    assert program.steps() == [spent(forward=32, backward=16, optimizer=2, rest=0)] * 3


def test_two_optimizers(program: Program) -> None:
    """Discriminator and generator are one step, with the phases of both."""
    first, second = program.forward(8), program.forward(16)
    of_first, of_second = program.optimizer(1), program.optimizer(2)
    for _ in range(3):
        program.loss(first, backward=4).backward()
        of_first.step()
        program.loss(second, backward=32).backward()
        of_second.step()
    told = program.steps()
    assert told[1:] == [spent(forward=24, backward=36, optimizer=3, rest=0)] * len(told[1:])
    assert sum(step["forward"] or 0 for step in told) == 72


def test_forward_and_backward_in_the_optimizer_s_closure(program: Program) -> None:
    """As in Lightning, which trains inside `optimizer.step`."""
    forward, optimizer = program.forward(8), program.optimizer(2)
    for _ in range(3):
        optimizer.step(lambda: program.loss(forward, backward=4).backward())
    assert program.steps() == [spent(forward=8, backward=4, optimizer=2, rest=0)] * 3


def test_spans_win(program: Program) -> None:
    """A span in a forward is not the forward's; a forward in an evaluation is the evaluation's."""
    forward, optimizer = program.forward(8), program.optimizer(2)

    @torch._dynamo.disable
    def metric() -> None:
        with span("metrics"):
            program.takes(16)

    def measured(x: Any) -> Any:
        metric()
        return (x * 3).sum()

    compiled = torch.compile(measured, backend="eager")
    for _ in range(3):
        program.loss(compiled, backward=4).backward()
        with span("eval"):
            program.takes(1)
            forward(torch.ones(2))
        optimizer.step()
    timeline = program.timeline()
    told = [phases(step) for step in timeline.steps]
    assert [step["spans"] for step in told] == pytest.approx([16 + 1 + 8] * 3)
    assert [step["forward"] for step in told] == pytest.approx([0] * 3, abs=1e-9)
    assert [(one.name, one.phase) for one in timeline.spans[:2]] == [
        ("metrics", "forward"),
        ("eval", "rest"),
    ]


def test_a_whole_step_in_one_compiled_function(program: Program) -> None:
    """Where its graph breaks, backward and optimizer run eagerly and are told apart."""
    optimizer = program.optimizer(2)

    def work_of_a_hook(_: Any) -> None:
        program.takes(4)

    @torch._dynamo.disable
    def backward(loss: Any) -> None:
        loss.register_hook(work_of_a_hook)
        loss.backward()

    @torch._dynamo.disable
    def work() -> None:
        program.takes(8)

    def whole(x: Any) -> None:
        work()
        backward((x * 2).sum())
        torch._dynamo.disable(optimizer.step)()

    compiled = torch.compile(whole, backend="eager")
    for _ in range(3):
        compiled(torch.ones(2, requires_grad=True))
    assert [(step["forward"], step["backward"], step["optimizer"]) for step in program.steps()] == [
        (8, 4, 2)
    ] * 3


def test_a_backward_that_raises_ends(program: Program) -> None:
    """The user's exception is the user's, and the time after it is not the backward's."""
    forward, optimizer = program.forward(8), program.optimizer(2)

    def fail(_: Any) -> None:
        program.takes(4)
        raise KeyError("mine")

    for _ in range(2):
        loss = forward(torch.ones(2, requires_grad=True))
        loss.register_hook(fail)
        with pytest.raises(KeyError, match="mine"):
            loss.backward()
        program.takes(16)
        optimizer.step()
    assert [(step["backward"], step["rest"]) for step in program.steps()] == [(4, 16)] * 2


def test_a_compiled_call_that_raises_ends(program: Program) -> None:
    """The time after it is not the forward's."""
    optimizer = program.optimizer(2)

    @torch._dynamo.disable
    def fail() -> None:
        program.takes(8)
        raise KeyError("mine")

    def function(x: Any) -> Any:
        fail()
        return x

    compiled = torch.compile(function, backend="eager")
    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            compiled(torch.ones(2))
        program.takes(16)
        optimizer.step()
    assert [(step["forward"], step["rest"]) for step in program.steps()] == [(8, 16)] * 2


def test_a_compiled_model_is_told_as_a_whole(program: Program) -> None:
    """Compiled as it is, or in place."""
    optimizer = program.optimizer(2)
    model, in_place = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    in_place.compile(backend="eager")
    for one in (torch.compile(model, backend="eager"), in_place):
        one(torch.ones(2)).sum().backward()
        optimizer.step()
    timeline = program.timeline()
    assert [step.forward_s for step in timeline.steps] == [0.0, 0.0]


def test_a_compiled_optimizer_is_the_optimizer(program: Program) -> None:
    """Its own step is that phase."""
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    update = torch.compile(optimizer.step, backend="eager")
    for _ in range(3):
        model(torch.ones(2)).sum().backward()
        update()
    timeline = program.timeline()
    assert {step.optimizer_s for step in timeline.steps} == {0.0}
    assert {step.forward_s for step in timeline.steps} == {None}


def test_disabled_functions_are_timed_by_phase(program: Program) -> None:
    """Hooks behind `torch.compiler.disable`, in the forward and in the backward: how often, and in
    which phase."""
    optimizer = program.optimizer(2)

    @torch.compiler.disable
    def hook(_module: Any, _inputs: Any, output: Any) -> None:
        program.takes(1)

    @torch.compiler.disable
    def gradient_hook(_: Any) -> None:
        program.takes(1)

    model = torch.nn.Linear(2, 1)
    model.register_forward_hook(hook)
    model.weight.register_hook(gradient_hook)
    compiled = torch.compile(model, backend="aot_eager")
    for _ in range(3):
        compiled(torch.ones(2)).sum().backward()
        optimizer.step()
    mine = [one for one in program.timeline().disabled_calls if one.function.file == __file__]
    told = [(one.function.function.rpartition(".")[2], one.phase, one.count) for one in mine]
    # torch 2.15 tells only of calls from compiled code; autograd calls the other from C++.
    silent = "callback" in gradient_hook.__code__.co_varnames
    backward = [] if silent else [("gradient_hook", "backward", 3)]
    assert told == [("hook", "forward", 3), *backward]
