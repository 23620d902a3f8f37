"""The claim which other sizes a compiled frame serves, against torch's own answer for calls with
those sizes; and that nothing is compiled, counted or kept alive for it."""

import gc
import random
import threading
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch

from compilediag.runs.watch import WatchResult, watch
from compilediag_harness.collectors.accepted_sizes import find_spans
from compilediag_harness.torch_internals import torch_compiles
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


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.drop = torch.nn.Conv1d(3, 4, 3), torch.nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(self.conv(x)).mean()


def test_nothing_is_kept_alive() -> None:
    """A model and a batch that the program drops go, although their frame was compiled; what is
    said of it then holds for another model of the class."""
    model, batch = Net(), torch.ones(4, 3, 9)
    alive = weakref.ref(model), weakref.ref(batch)
    torch._dynamo.reset()
    with watch() as seen:
        compiled = torch.compile(model, backend="eager")
        compiled(batch), compiled(torch.ones(8, 3, 9))
        del model, batch, compiled
        gc.collect()
        assert [its() for its in alive] == [None, None]
    (asked,) = [event for event in seen.events if isinstance(event, InputsAsked)]
    assert asked.partial
    assert asked.sizes[0].spans == ((2, 15),)
    another = torch.compile(Net(), backend="eager")
    served = [size for size in range(1, 20) if _is_served(another, torch.ones(size, 3, 9))]
    assert served == [*range(2, 16)]


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


def test_a_restart_is_told_with_its_reason_and_variable() -> None:
    """A tensor without dimensions, of float64, is first taken for a symbolic float: torch's own
    row has the reason. In float32 the frame is traced once, and nothing is said."""
    restarts: list[Any] = []
    for dtype in (torch.float64, torch.float32):
        torch._dynamo.reset()
        with watch() as seen:
            compiled = torch.compile(lambda x, s: x * s.sin(), backend="aot_eager")
            compiled(torch.ones(3), torch.tensor(0.5, dtype=dtype))
        restarts += [event.restart for event in seen.receipt.compile.events]
    first, second = restarts
    assert second is None
    assert first.reasons == ("TensorifyScalarRestartAnalysis",)
    assert (first.variables, first.seconds > 0) == (("s",), True)


def test_the_lifted_limit_holds_in_every_thread() -> None:
    """Whatever the program has set: torch's options belong to a thread since 2.12."""
    counts: list[int] = []

    def work() -> None:
        compiled = torch.compile(lambda x, n: x * n if n else x, backend="eager", dynamic=False)
        with torch._dynamo.config.patch(recompile_limit=2):
            for count in range(6):
                compiled(torch.ones(2), float(count + 1))
        counts.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])

    for lifted in (False, True):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        remove = torch_compiles.lift_recompile_limit() if lifted else None
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        if remove is not None:
            remove()
    assert counts == [2, 6]
