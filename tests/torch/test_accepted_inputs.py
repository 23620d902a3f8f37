"""The claim which other sizes a compiled frame serves, against torch's own answer for calls with
those sizes; and that nothing is compiled, counted or kept alive for it."""

import gc
import random
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch

from compilediag.runs.watch import WatchResult, watch
from compilediag_harness.collectors.accepted_sizes import find_spans
from compilediag_harness.wire import FaultOccurred, InputsAsked

CONV = torch.nn.Conv1d(4, 4, 1)

LINES = (
    "x = CONV(x)",
    "x = x[:6]",
    "x = torch.cat([x, x])",
    "x = x.reshape(4, -1, x.shape[1], x.shape[2])[0]",
    "x = x + 1 if x.shape[0] % 3 else x - 1",
    "x = x + 1 if x.shape[0] > 9 else x - 1",
    "x = x - 1 if x.shape[0] == 12 else x",
    "x = x * int(x.shape[0])",
    "x = x + y",
    "x = x + x.shape[2] // 4",
)
SEEDS = range(12)


def _make_program(draw: random.Random) -> Callable[..., Any]:
    lines = [draw.choice(LINES) for _ in range(draw.randint(1, 3))]
    source = "def run(x, y):\n    " + "\n    ".join([*lines, "return x.sum()"])
    names = {"torch": torch, "CONV": CONV, "__name__": "__main__"}
    exec(source, names)
    return names["run"]


def _watch(function: Callable[..., Any], *calls: tuple[Any, ...]) -> tuple[WatchResult, Any]:
    torch._dynamo.reset()
    with watch() as seen:
        for arguments in calls:
            function(*arguments)
    assert not [event for event in seen.events if isinstance(event, FaultOccurred)]
    return seen, next(event for event in seen.events if isinstance(event, InputsAsked))


def _is_served(function: Callable[..., Any], *arguments: Any) -> bool:
    try:
        with torch.compiler.set_stance("fail_on_recompile"):
            function(*arguments)
    except RuntimeError as error:
        return "fail_on_recompile" not in str(error)
    return True


@pytest.mark.parametrize("seed", SEEDS)
def test_torch_says_the_same(seed: int) -> None:
    """Random programs, called with random sizes: each size is served or not, as was claimed."""
    draw = random.Random(seed)
    compiled = torch.compile(
        _make_program(draw), backend="eager", dynamic=draw.choice([None, None, True])
    )

    def make(sizes: dict[str, int]) -> tuple[Any, ...]:
        shapes = {"x": (8, 4, 8), "y": (8, 1, 1)}
        return tuple(
            torch.zeros([sizes.get(f"{name}.shape[{dim}]", size) for dim, size in enumerate(shape)])
            for name, shape in shapes.items()
        )

    seen = draw.sample((4, 8, 12, 16, 24), draw.randint(1, 3))
    calls = [make({"x.shape[0]": size, "y.shape[0]": size}) for size in seen]
    _, asked = _watch(compiled, *calls)
    assert asked.not_asked is None
    assert asked.sizes
    sizes = {name: its.size for its in asked.sizes for name in its.dimensions}
    for group in asked.sizes:
        near = (group.size + draw.randint(-3, 3) for _ in range(4))
        others = (draw.randint(0, most) for most in (20, 20, 40, 130, 300, 3000) for _ in range(3))
        for size in (*near, *others):
            if 0 <= size <= group.asked_to:
                claim = any(first <= size <= last for first, last in group.spans)
                given = make({**sizes, **dict.fromkeys(group.dimensions, size)})
                assert _is_served(compiled, *given) == claim, (group, size)


@pytest.mark.parametrize("gradients", [True, False])
def test_grad_modes(gradients: bool) -> None:
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    _, asked = _watch(compiled, (torch.ones(3),))
    with torch.set_grad_enabled(gradients):
        assert _is_served(compiled, torch.ones(3)) == (gradients in asked.gradients)


def test_nothing_is_kept_alive_and_what_died_is_not_asked() -> None:
    """A model and a batch that the program drops go, although their frame was compiled."""
    model, batch = torch.nn.Linear(3, 3), torch.ones(2, 3)
    alive = weakref.ref(model), weakref.ref(batch)
    torch._dynamo.reset()
    with watch() as seen:
        torch.compile(lambda m, x: m(x), backend="eager")(model, batch)
        del model, batch
        gc.collect()
        assert [its() for its in alive] == [None, None]
    asked = [event for event in seen.events if isinstance(event, InputsAsked)]
    assert all(event.not_asked is not None and not event.sizes for event in asked)


def test_counters_and_rng_stay() -> None:
    """Asking compiles nothing, counts nothing, and draws no number."""
    compiled = torch.compile(lambda x: x.sin(), backend="eager")
    torch._dynamo.reset()
    watching = watch()
    with watching:
        compiled(torch.ones(4))
        before = {kind: dict(its) for kind, its in torch._dynamo.utils.counters.items()}
        state, drawn = torch.get_rng_state(), random.getstate()
    after = {kind: dict(its) for kind, its in torch._dynamo.utils.counters.items()}
    assert (after, random.getstate()) == (before, drawn)
    assert torch.equal(torch.get_rng_state(), state)
    assert _is_served(compiled, torch.ones(4))


def test_asked_before_a_reset() -> None:
    compiled = torch.compile(lambda x: x.sin(), backend="eager", dynamic=True)
    torch._dynamo.reset()
    with watch() as seen:
        compiled(torch.ones(4))
        torch._dynamo.reset()
    (asked,) = [event for event in seen.events if isinstance(event, InputsAsked)]
    assert (asked.epoch, asked.sizes[0].spans[0][0]) == (0, 2)


class Marked(torch.Tensor):
    """A subclass whose guard is code of the program."""

    asked: ClassVar[list[Any]] = []

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "Marked":
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    def __tensor_flatten__(self) -> tuple[list[str], str]:
        return ["inner"], "mark"

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Any], mark: str, size: Any, stride: Any) -> "Marked":
        return Marked(inner["inner"])

    @classmethod
    def __metadata_guard__(cls, saved: object, now: object) -> bool:
        cls.asked.append(now)
        return True

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        inner = [its.inner if isinstance(its, Marked) else its for its in args]
        return Marked(function(*inner, **(kwargs or {})))


def test_guards_of_the_program_are_not_asked() -> None:
    torch._dynamo.reset()
    value = Marked(torch.ones(3))
    with watch() as seen:
        torch.compile(lambda x: x * 2, backend="eager")(value)
        count = len(Marked.asked)
    (asked,) = [event for event in seen.events if isinstance(event, InputsAsked)]
    assert len(Marked.asked) == count
    assert "a guard calls Python code" in (asked.not_asked or "")


@pytest.mark.parametrize(
    ("accepted", "size", "spans", "asked_to"),
    [
        (lambda n: 2 <= n <= 15, 4, [(2, 15)], 5000),
        (lambda n: n >= 2, 4, [(2, 5000)], 5000),
        (lambda n: n == 1024, 1024, [(1024, 1024)], 5000),
        (lambda n: 300 < n <= 2777, 1024, [(301, 2777)], 5000),
        (lambda n: n != 700 and n > 1, 8, [(2, 699), (701, 5000)], 5000),
        (lambda n: n and not n % 64, 64, [(64, 64), (128, 128)], 128),
        (lambda n: n < 3, 2, [(0, 2)], 5000),
    ],
)
def test_spans(
    accepted: Callable[[int], bool], size: int, spans: list[tuple[int, int]], asked_to: int
) -> None:
    assert find_spans(accepted, size, 5000, [700]) == (spans, asked_to)
