"""What the code does and its graph does not: compared with eager, call by call, on the installed
torch. What differs by version is said by `WRITES`, `DRAWS` and `SHUFFLES`."""

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rule_pages import run_code_of

from compilediag import watch

pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings(
        "ignore:Dynamo does not know how to trace:UserWarning",
        "ignore:`torch.jit:DeprecationWarning",
    ),
]

VERSION = tuple(map(int, torch.__version__.split(".")[:2]))
WRITES = ["state.low"] if VERSION < (2, 15) else []
"""What torch leaves out of a graph; 2.15 writes."""
DRAWS = ["state.rng"] if VERSION < (2, 15) else []
"""What draws once for all calls of a graph; 2.15 draws anew."""
MISREAD = ["random.uniform"] if VERSION < (2, 15) else []
"""What inductor reads as another number."""
SHUFFLES = ["state.rng"] if VERSION >= (2, 15) else []
"""What 2.15 does once for all calls; others break the graph there."""


class Holder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("low", torch.tensor(9.0, dtype=torch.float64))
        self.rng, self.other = random.Random(0), random.Random(1)


State = Any
Step = Callable[[State, torch.Tensor], torch.Tensor]


def add_in_place(state: State, x: torch.Tensor) -> torch.Tensor:
    state.low.add_(1)
    return x * state.low


def write_only(state: State, x: torch.Tensor) -> torch.Tensor:
    low = state.low
    low += 1
    return x.sin()


def write_twice(state: State, x: torch.Tensor) -> torch.Tensor:
    state.low.copy_(x.sum())
    torch.add(state.low, 1, out=state.low)
    return x.sum() + state.low


def assign(state: State, x: torch.Tensor) -> torch.Tensor:
    state.low = state.low + x.sum()
    return x * state.low


def assign_in_place(state: State, x: torch.Tensor) -> torch.Tensor:
    state.low += 1
    return x * state.low


def read_only(state: State, x: torch.Tensor) -> torch.Tensor:
    state.low.double()  # takes nothing away from the code
    return x * state.low


def draw(state: State, x: torch.Tensor) -> torch.Tensor:
    return x * state.rng.uniform(0, 1) + state.rng.randint(1, 9)


def draw_and_break(state: State, x: torch.Tensor) -> torch.Tensor:
    y = x * state.rng.random()
    torch._dynamo.graph_break()
    return y.sin()


def draw_after_seed(state: State, x: torch.Tensor) -> torch.Tensor:
    state.rng.seed(5)
    return x * state.rng.random()


def draw_in_skipped_frame(state: State, x: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        x = x * state.rng.random()
        torch._dynamo.graph_break()  # in a loop: the whole frame runs eager
    return x


def draw_from_module(_: State, x: torch.Tensor) -> torch.Tensor:
    return x * random.uniform(0, 1)


def sample(state: State, x: torch.Tensor) -> torch.Tensor:
    return x * state.rng.sample(range(1000), 3)[0]


def draw_after_shuffle(state: State, x: torch.Tensor) -> torch.Tensor:
    state.rng.shuffle([1, 2, 3])
    return x * state.rng.random()


def shuffle_from_module(_: State, x: torch.Tensor) -> torch.Tensor:
    order = list(range(100))
    random.shuffle(order)
    return x * order[0]


def shuffle_after_seed(_: State, x: torch.Tensor) -> torch.Tensor:
    order = list(range(100))
    random.seed(5)
    random.shuffle(order)
    return x * order[0]


@pytest.mark.parametrize(
    ("step", "named"),
    [
        (add_in_place, WRITES),
        (write_only, WRITES),
        (write_twice, WRITES),
        (draw, DRAWS),
        (draw_and_break, DRAWS),
        (sample, SHUFFLES),
        (draw_after_shuffle, ["state.rng"]),
        (shuffle_from_module, ["random.shuffle.__self__"] if SHUFFLES else []),
        (assign, []),
        (assign_in_place, []),
        (read_only, []),
        (draw_after_seed, []),
        (draw_in_skipped_frame, []),
        (draw_from_module, []),
        (shuffle_after_seed, []),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_what_a_graph_does_otherwise_than_eager_is_named(step: Step, named: list[str]) -> None:
    """A finding is there exactly where values differ from eager, and none where they do not."""
    eager, state = Holder(), Holder()
    inputs = [torch.rand(3) + number for number in range(3)]
    random.seed(0)
    expected = [(step(eager, x), copy.deepcopy(eager.low)) for x in inputs]
    random.seed(0)
    with watch() as seen:
        compiled = torch.compile(step, backend="aot_eager")
        got = [(compiled(state, x), copy.deepcopy(state.low)) for x in inputs]
    same = all(
        torch.equal(one, other)
        for before, after in zip(expected, got, strict=True)
        for one, other in zip(before, after, strict=True)
    )
    findings = [finding for finding in seen.findings if finding.rule == "CD652"]
    assert [finding.variable for finding in findings] == named
    assert same == (not named)
    assert all(Path(f.location.file) == Path(__file__) for f in findings if f.location)


def test_a_draw_that_inductor_reads_as_another_number() -> None:
    """Where it does; an integer is right. The backend sees it, not the graph (above)."""

    def step(x: torch.Tensor) -> torch.Tensor:
        return x * random.uniform(0, 1) + random.randint(1, 9)

    random.seed(0)
    expected = step(torch.ones(3))
    random.seed(0)
    with watch() as seen:
        got = torch.compile(step, backend="inductor")(torch.ones(3))
    findings = [finding for finding in seen.findings if finding.rule == "CD652"]
    assert [finding.variable for finding in findings] == MISREAD
    assert torch.allclose(expected, got) == (not MISREAD)
    assert [finding.location.line for finding in findings] == [step.__code__.co_firstlineno + 1][
        : len(MISREAD)
    ]


def draw_uniform(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(x).uniform_(0.0, 1.0)


def draw_normal(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(x).normal_()


def draw_rand(x: torch.Tensor) -> torch.Tensor:
    return torch.rand(x.shape)


def draw_randn(x: torch.Tensor) -> torch.Tensor:
    return torch.randn(x.shape)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize(
    "draw_two",
    [
        draw_uniform,
        draw_normal,
        draw_rand,
        draw_randn,
        torch.rand_like,
        torch.nn.functional.dropout,
    ],
)
def test_equal_draws_that_a_graph_has_once(
    draw_two: Callable[[torch.Tensor], torch.Tensor], gradients: bool, backend: str
) -> None:
    """As in the gates of two mixture-of-experts layers. A finding is there exactly where two draws
    give the same numbers; without that pass of torch they do not."""

    def step(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(draw_two(torch.ones(64)) * x.sum() for _ in range(2))

    x = torch.ones(64, requires_grad=gradients)
    with watch() as seen:
        one, other = torch.compile(step, backend=backend)(x)
    named = [finding.variable for finding in seen.findings if finding.rule == "CD652"]
    assert bool(named) == torch.equal(one, other)
    if VERSION == (2, 13):
        assert bool(named) == (gradients and draw_two in (draw_uniform, draw_normal))
    torch._dynamo.reset()
    with torch._functorch.config.patch(cse=False):
        one, other = torch.compile(step, backend=backend)(x)
    assert not torch.equal(one, other)


def test_a_write_to_what_an_optimizer_holds() -> None:
    """torch's own RMSprop, over parameters of float64, counts no step: what an optimizer holds is
    an attribute of the graph, not an input of it."""
    parameter = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # of the counter
    try:
        optimizer = torch.optim.RMSprop([parameter], foreach=False)
        with watch() as seen:
            step = torch.compile(optimizer.step, backend="aot_eager")
            for _ in range(2):
                parameter.grad = torch.ones_like(parameter)
                step()
    finally:
        torch.set_default_dtype(before)
    assert optimizer.state[parameter]["step"].item() == (0 if WRITES else 2)
    findings = [finding for finding in seen.findings if finding.rule == "CD652"]
    named = [("self.state", "in-place `iadd` left out of the graph")] if WRITES else []
    assert [(finding.variable, finding.title) for finding in findings] == named


@pytest.mark.parametrize(("heading", "count"), [("Bad", len(WRITES)), ("Good", 0)])
def test_page(heading: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with watch() as seen:
        module = run_code_of("CD652", heading, tmp_path, monkeypatch)
    assert [finding.rule for finding in seen.findings] == ["CD652"] * count
    assert (module.lowest.item() == 9) == bool(count)
