"""The claim which other sizes a compiled frame serves, against torch's own answer for calls with
those sizes; and that nothing is kept alive for it."""

import gc
import random
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from compilediag.receipt.schema.compiles import AcceptedSizes
from compilediag.runs.watch import watch
from compilediag.views.graphs import list_served
from compilediag.views.style import PLAIN
from compilediag_harness.torch_internals import torch_compiles
from compilediag_harness.wire import FaultOccurred

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
    "x = x if 10 * x.shape[0] < 3000 else x + 1",
)
SEEDS = range(12)


def _make_program(draw: random.Random) -> Callable[..., Any]:
    lines = [draw.choice(LINES) for _ in range(draw.randint(1, 3))]
    source = "def run(x, y):\n    " + "\n    ".join([*lines, "return x.sum()"])
    names = {"torch": torch, "CONV": CONV, "__name__": "__main__"}
    exec(source, names)
    return names["run"]


def _watch(function: Callable[..., Any], *calls: tuple[Any, ...]) -> tuple[AcceptedSizes, ...]:
    torch._dynamo.reset()
    with watch() as seen:
        for arguments in calls:
            function(*arguments)
    assert not [event for event in seen.events if isinstance(event, FaultOccurred)]
    return seen.receipt.compile.accepted_sizes


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
    groups = _watch(compiled, *calls)
    sizes = {name: group.size for group in groups for name in group.dimensions}
    for group in groups:
        near = (group.size + draw.randint(-3, 3) for _ in range(4))
        far = (draw.randint(0, most) for most in (20, 20, 40, 130, 300, 3000) for _ in range(3))
        for size in (*near, *far):
            if 0 <= size <= group.largest:
                claim = any(first <= size <= last for first, last in group.spans)
                given = make({**sizes, **dict.fromkeys(group.dimensions, size)})
                assert _is_served(compiled, *given) == claim, (group, size)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.drop = torch.nn.Conv1d(3, 4, 3), torch.nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(self.conv(x)).mean()


def test_slices_are_varied_with_the_others() -> None:
    """Rays that are columns of a batch: a call with as many points alone is none that is made."""

    def run(points: torch.Tensor, rays: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return points.sum(1, keepdim=True) + rays * scale

    def make(rows: int) -> tuple[torch.Tensor, ...]:
        return torch.ones(rows, 2), torch.ones(rows, 8)[:, 3:6], torch.ones(3).expand(rows, 3)

    compiled = torch.compile(run, backend="eager", dynamic=False)
    (group,) = _watch(compiled, *map(make, (40, 48, 10)))
    assert {*group.dimensions} == {"points.shape[0]", "rays.shape[0]", "scale.shape[0]"}
    for size in (2, 10, 39, 40, 48, 50):
        claim = any(first <= size <= last for first, last in group.spans)
        assert _is_served(compiled, *make(size)) == claim, (group, size)


def test_a_tensor_that_some_calls_lack_is_varied_with_the_others() -> None:
    """An action that is only given in training (PPO): its batch is that of the observations, and a
    call with another batch in one of them alone is none that the program makes."""

    def act(x: torch.Tensor, action: torch.Tensor | None = None) -> torch.Tensor:
        action = x.argmax(1) if action is None else action
        return x.gather(1, action[:, None])

    compiled = torch.compile(act, backend="eager")
    calls = [(torch.ones(size, 3), torch.zeros(size, dtype=torch.int64)) for size in (42, 2)]
    (sizes,) = _watch(compiled, (torch.ones(4, 3),), *calls)
    assert sizes.dimensions == ("x.shape[0]", "action.shape[0]")
    assert sizes.spans == ((2, sizes.largest),)
    assert _is_served(compiled, torch.ones(10, 3), torch.zeros(10, dtype=torch.int64))


def test_both_sizes_of_a_matrix_are_varied_together() -> None:
    """Nodes and the matrix of their edges, as of a graph network: one number of nodes."""
    compiled = torch.compile(lambda x, edges: (edges @ x).sum(), backend="eager")

    def make(nodes: int) -> tuple[Any, ...]:
        return torch.ones(nodes, 16), torch.ones(nodes, nodes)

    (group,) = _watch(compiled, *map(make, (30, 40, 35)))
    assert group.dimensions == ("x.shape[0]", "edges.shape[0]", "edges.shape[1]")
    assert group.spans == ((2, group.largest),)
    assert _is_served(compiled, *make(50))


def test_nothing_is_kept_alive() -> None:
    """A model and a batch that the program drops go, although what their frame serves is known; it
    holds for another model of the class."""
    model, batch = Net(), torch.ones(4, 3, 9)
    alive = weakref.ref(model), weakref.ref(batch)
    torch._dynamo.reset()
    with watch() as seen:
        compiled = torch.compile(model, backend="eager")
        compiled(batch), compiled(torch.ones(8, 3, 9))
        del model, batch, compiled
        gc.collect()
        assert [its() for its in alive] == [None, None]
    (asked,) = seen.receipt.compile.accepted_sizes
    if torch.__version__.startswith("2.7."):  # one graph, whatever the convolution's batch
        assert asked.spans == ((2, asked.largest),)
        return
    assert asked.spans == ((2, 15),)
    said = list_served(seen.receipt, PLAIN)[0]
    assert said.startswith(
        "forward serves x.shape[0] 2–15, and compiles again for 1 and 16 or more"
    )
    assert "guard of torch's conv: x.size()[0] < 16" in said
    another = torch.compile(Net(), backend="eager")
    served = [size for size in range(1, 20) if _is_served(another, torch.ones(size, 3, 9))]
    assert served == [*range(2, 16)]


MODE = ["train"]


def test_of_another_mode_nothing_is_said() -> None:
    """Graphs of two modes: those of the mode that was compiled last are said, and not that another
    graph of the frame serves 4."""

    def run(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if MODE[0] == "train" else x - 1

    compiled = torch.compile(run, backend="eager", dynamic=False)
    torch._dynamo.reset()
    with watch() as seen:
        for mode, sizes in (("train", (4, 8)), ("eval", (8, 6))):
            MODE[0] = mode
            for size in sizes:
                compiled(torch.ones(size))
    (asked,) = seen.receipt.compile.accepted_sizes
    assert asked.spans == ((6, 6), (8, 8))
    assert list_served(seen.receipt, PLAIN)[0].startswith(
        "run, with all else as at its last compile, serves "
    )
    assert [size for size in range(1, 12) if _is_served(compiled, torch.ones(size))] == [6, 8]


class Growing(torch.nn.Module):
    """A table that each longer call replaces, as rotary embeddings have."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.ones(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table.shape[0] < x.shape[0]:
            self.table = torch.ones(x.shape[0])
        return x * self.table[: x.shape[0]]


def test_nothing_is_served_where_torch_gave_up_a_recompile() -> None:
    """Each later call runs eager, also one that fits the graph."""

    def f(x: torch.Tensor, flag: bool) -> torch.Tensor:
        for _ in range(2):
            x = x + 1
            if flag:
                torch._dynamo.graph_break()
        return x + 100 * torch.compiler.is_compiling()

    x, again = torch.zeros(4), torch.zeros(5)
    torch._dynamo.reset()
    compiled = torch.compile(f, backend="eager")
    with watch() as seen:
        served = [compiled(given, False)[0].item() for given in (x, again, again)]
        given_up = [compiled(x, flag)[0].item() for flag in (True, False)]
    assert (served, given_up) == ([102.0] * 3, [2.0] * 2)
    section = seen.receipt.compile
    assert (section.eager_fallbacks, section.compiles, section.accepted_sizes) == (1, 2, ())


def test_nothing_is_said_after_a_call_that_its_graph_does_not_serve_again() -> None:
    compiled = torch.compile(Growing(), backend="eager")
    assert _watch(compiled, (torch.ones(4),), (torch.ones(7),)) == ()
    assert not _is_served(compiled, torch.ones(8))


def test_a_restart_is_told_with_its_reason_and_variable() -> None:
    """A tensor without dimensions, of float64, is first taken for a symbolic float: torch's own
    row has the reason. In float32 the frame is traced once, and nothing is said."""
    events: list[Any] = []
    for dtype in (torch.float64, torch.float32):
        torch._dynamo.reset()
        with watch() as seen:
            compiled = torch.compile(lambda x, s: x * s.sin(), backend="aot_eager")
            compiled(torch.ones(3), torch.tensor(0.5, dtype=dtype))
        events += seen.receipt.compile.events
    first, second = events
    assert (second.restart_reasons, second.restarted_for) == ((), ())
    assert "TensorifyScalarRestartAnalysis" in first.restart_reasons[0]
    assert (first.restarted_for, first.restarted_s > 0) == (("L['s'].item()",), True)


def test_the_lifted_limit_holds_in_every_thread() -> None:
    """Whatever the program has set: torch's options belong to a thread since 2.12."""
    counts: list[int] = []

    def work() -> None:
        compiled = torch.compile(lambda x, name: x * len(name), backend="eager", dynamic=False)
        with torch._dynamo.config.patch(recompile_limit=2):
            for count in range(6):
                compiled(torch.ones(2), "a" * count)
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
