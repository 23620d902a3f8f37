"""`FixedShape.check`: kinds of functions, and what padding does to each of them. What the campaign
of random callables judges (`test_padding_campaign.py`) is not repeated here."""

import queue
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from compilediag_harness.shapes import reachable, side_effects
from compilediag_harness.shapes.dims import PaddingContaminates, ShapeUnusable
from compilediag_harness.shapes.fixed_shape import FixedShape
from compilediag_harness.shapes.padding_check import PaddingReport

nn = torch.nn
ROWS, WIDTH = 11, 8


def attention(x: Any, real: Any) -> Any:
    """Rows attend to rows."""
    return (x @ x.T).masked_fill(~real, -torch.inf).softmax(-1) @ x


def selected_sum(x: Any, real: Any) -> Any:
    return torch.where(real[:, None], x, 0.0).sum(0) / real.sum()


Maker = Callable[[], Callable[..., Any]]

KINDS: dict[str, tuple[Maker, str | None, str]] = {
    "linear": (lambda: nn.Linear(WIDTH, WIDTH), None, "safe"),
    "layer norm": (lambda: nn.LayerNorm(WIDTH), None, "safe"),
    "batch norm, train": (lambda: nn.BatchNorm1d(WIDTH).train(), None, "contaminated"),
    "attention, masked": (lambda: attention, "real", "nan_leak"),
    "mean": (lambda: lambda x: x.mean(), None, "reduced"),
    "mean, selected by the mask": (lambda: selected_sum, "real", "safe"),
    "divided by the length": (lambda: lambda x: x / x.shape[0], None, "parity"),
    "dropout": (lambda: lambda x: nn.functional.dropout(x, 0.5), None, "rng"),
}


def example() -> Any:
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(3))


def report_of(name: str) -> PaddingReport:
    make, mask, _ = KINDS[name]
    torch.manual_seed(0)
    function = make()
    argument = "input" if isinstance(function, nn.Module) else "x"
    fixed = FixedShape(function, {argument: 0}, [16], mask=mask)
    return fixed.check(example())


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_of_function_is_told_apart(name: str) -> None:
    """The verdict of the one output is the known one; only harmless ones are safe."""
    report = report_of(name)
    expected = KINDS[name][2]
    assert report.outputs[""].kind == expected
    assert report.safe == (expected in ("safe", "nan_leak"))
    assert report.rng_consumed == (expected == "rng")
    assert report.size == (ROWS,)
    assert report.run == (16,)


def test_training_statistics_are_a_state_of_their_own() -> None:
    """Batch norm in training spoils the rows, and its running statistics as well."""
    kinds = {path: item.kind for path, item in report_of("batch norm, train").outputs.items()}
    assert kinds["buffer running_mean"] == kinds["buffer running_var"] == "state"
    assert "buffer num_batches_tracked" not in kinds


def test_same_shapes_are_compared_to_the_last_bit() -> None:
    """Different padding of a layer norm gives the same bits; without padding it need not."""
    assert report_of("layer norm").outputs[""].bitwise


def test_gradients_of_a_plain_mean_are_contaminated() -> None:
    """The rows are fine; the gradient of the mean over all of them is not."""
    torch.manual_seed(0)
    layer = nn.Linear(WIDTH, 1)

    def loss(x: Any) -> Any:
        return layer(x).mean()

    report = FixedShape(loss, {"x": 0}, [16]).check(example())
    assert report.outputs[""].kind == "reduced"
    assert report.outputs["gradient weight"].kind == "contaminated"


def test_gradients_of_masked_means_are_equal() -> None:
    """The mask makes the same loss safe, and so its gradients."""
    torch.manual_seed(0)
    layer = nn.Linear(WIDTH, 1)

    def loss(x: Any, real: Any) -> Any:
        return torch.where(real[:, None], layer(x), 0.0).sum() / real.sum()

    report = FixedShape(loss, {"x": 0}, [16], mask="real").check(example())
    assert report.safe
    assert set(report.outputs) == {"", "gradient weight", "gradient bias"}
    assert FixedShape(loss, {"x": 0}, [16], mask="real").check(
        example(), gradients=False
    ).outputs.keys() == {""}


def test_arguments_changed_in_place_are_found() -> None:
    """The caller of a padded call would not see the change."""
    report = FixedShape(lambda x: x.mul_(2.0), {"x": 0}, [16]).check(example())
    assert report.outputs["argument x"].kind == "state"
    assert not report.safe


def test_overflow_in_large_padding_is_no_contamination() -> None:
    """exp of a large padding row is infinite, and its gradient NaN: usual padding is not."""
    torch.manual_seed(0)
    layer = nn.Linear(WIDTH, 1)
    report = FixedShape(lambda x: layer(x).exp(), {"x": 0}, [16]).check(example())
    assert report.safe
    assert report.outputs[""].kind == "safe"


def test_a_check_leaves_no_trace() -> None:
    """Modules, gradients, random states and the example are as before."""
    torch.manual_seed(5)
    random.seed(5)
    model = nn.Sequential(nn.BatchNorm1d(WIDTH), nn.Dropout(), nn.Linear(WIDTH, 2))
    before = {name: item.clone() for name, item in model.state_dict().items()}
    states = torch.get_rng_state(), random.getstate()
    rows = example()
    kept = rows.clone()
    FixedShape(model, {"input": 0}, [16]).check(rows)
    assert all(torch.equal(before[name], item) for name, item in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert torch.equal(rows, kept)


def test_harmful_padding_is_an_error_that_says_what_to_do() -> None:
    """It names the function, the output, what was seen, and the way out."""
    fixed = FixedShape(lambda x: x.softmax(0), {"x": 0}, [16])
    with pytest.raises(
        PaddingContaminates, match=r"11 of 11 real rows change .* mask the"
    ) as error:
        fixed.warmup(example())
    assert "<lambda>" in str(error.value)
    assert fixed.warmup(example(), unsafe="allow") == 0
    report_of("dropout").require_harmless()


def test_the_report_says_what_was_tried() -> None:
    """Not contaminated on these probes: a statement with its limits."""
    report = report_of("linear")
    finite = ("padding in use", "zeros", "real rows", "lowest", "highest", "large", "larger")
    assert report.probes == (*finite, "nan")
    assert report.refused == ()
    assert len(report.seeds) == 2


def test_padding_that_the_function_refuses_is_told() -> None:
    """A probe it raises at says nothing: it is named, and not among those that were tried."""

    def doubled(x: Any) -> Any:
        if x.isnan().any():
            raise ValueError("not a number")
        return x * 2

    report = FixedShape(doubled, {"x": 0}, [16]).check(example())
    assert report.refused == ("nan",)
    assert "nan" not in report.probes


def test_full_batches_are_checked_with_fewer_rows() -> None:
    """An example as large as the largest size leaves room for padding all the same."""
    report = FixedShape(lambda x: x.softmax(0), {"x": 0}, [4, 8]).check(example())
    assert (report.size, report.run) == ((6,), (8,))
    assert report.outputs[""].kind == "contaminated"


# --- the padding in use -----------------------------------------------------------------------


def verdict_of(function: Any, **settings: Any) -> PaddingReport:
    fixed = FixedShape(function, {"x": 0}, [16], **settings)
    with torch.no_grad():
        return fixed.check(example())


SENTINELS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "a value that means nothing": (lambda x: x * (1.0 + (x == -100.0).any()), -100.0),
    "a number, not a tensor": (lambda x: (x, x.amax().item()), 0.0),
    "a shape": (lambda x: x[: 3 + int((x.abs() > 50).any())], -100.0),
    "a structure": (lambda x: (x, x) if (x == -100.0).any() else x, -100.0),
}


@pytest.mark.parametrize("name", SENTINELS)
def test_the_padding_in_use_is_tried(name: str) -> None:
    """Also where no other padding shows that it matters."""
    function, pad = SENTINELS[name]
    try:
        report = verdict_of(function, pad=pad)
    except ShapeUnusable:
        return  # its outputs cannot be cut: no call comes through either
    assert report.probes[0] == "padding in use"
    assert report.verdict == "unsafe"


def test_a_batch_that_holds_the_padding_already_hides_nothing() -> None:
    """Where every example has a -100, whether any is there says nothing: other batches do."""
    ids = torch.tensor([[-100, 3], [-100, 5], [2, 4], [3, 3]])
    fixed = FixedShape(lambda x: x + (x == -100).any(), {"x": 0}, [8], pad=-100)
    assert fixed.check(ids).verdict == "unsafe"


def test_gradients_that_a_repeated_row_shares_are_contaminated() -> None:
    """A maximum of equal rows shares its gradient among them, and the padding throws its part
    away."""
    rows = example().requires_grad_()
    report = FixedShape(lambda x: x.amax(0), {"x": 0}, [16]).check(rows)
    assert report.outputs[""].kind == "safe"
    assert report.outputs["gradient x"].kind == "contaminated"
    assert FixedShape(lambda x: x * 2, {"x": 0}, [16]).check(rows).outputs["gradient x"].bitwise


def test_nothing_is_known_where_no_other_padding_could_be_tried() -> None:
    """A function that takes nothing but what it was given first."""
    allowed = {float(row) for row in example()[:, 0]}

    def picky(x: Any) -> Any:
        if x.shape[0] == 16 and float(x[-1, 0]) != float(x[10, 0]):
            raise ValueError("another row")
        return x * len(allowed)

    report = verdict_of(picky)
    assert (report.verdict, report.safe, report.harmful) == ("unknown", False, {})


# --- state ------------------------------------------------------------------------------------

LOG: list[Any] = []
LAST: Any = None
TOTAL = torch.zeros(())


class Tracker:
    """An object outside modules, with a value of its class."""

    peak: Any = None

    def __init__(self) -> None:
        self.rows: list[Any] = []


TRACKER = Tracker()


class Layer(nn.Module):
    """Leaves something behind, in a way that is given."""

    def __init__(self, leave: Any) -> None:
        super().__init__()
        self.leave = leave
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.aux_loss: Any = None
        self.calls = 0
        self.kept: dict[str, Any] = {"list": [], "set": set()}
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        self.leave(self, x)
        return self.inner(x)


def set_global(_: Any, x: Any) -> None:
    global LAST
    LAST = x.shape[0]


def last_of(_: Any, x: Any, into: list[Any] = []) -> None:  # noqa: B006 - that is the case
    into.append(x.mean())


TRACES: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "auxiliary loss": (lambda m, x: setattr(m, "aux_loss", x.mean()), "attribute aux_loss"),
    "rows kept": (lambda m, x: setattr(m.inner, "last", x), "attribute inner.last"),
    "rows counted": (lambda m, x: setattr(m, "calls", m.calls + len(x)), "attribute calls"),
    "list": (lambda m, x: m.kept["list"].append(x.sum().item()), "attribute kept['list'][0]"),
    "dict": (lambda m, x: m.kept.update(n=len(x)), "attribute kept['n']"),
    "set": (lambda m, x: m.kept["set"].add(len(x)), "attribute kept['set'].*"),
    "buffer": (lambda m, x: m.total.add_(len(x)), "buffer total"),
    "buffer replaced": (lambda m, x: setattr(m, "total", x.sum()), "buffer total"),
    "global list": (lambda m, x: LOG.append(x.mean()), "global LOG[0]"),
    "global": (set_global, "global LAST"),
    "global tensor": (lambda m, x: TOTAL.add_(x.sum()), "global TOTAL"),
    "object": (lambda m, x: TRACKER.rows.append(len(x)), "global TRACKER.rows[0]"),
    "class": (lambda m, x: setattr(Tracker, "peak", x.sum()), "class Tracker.peak"),
    "default": (last_of, "default last_of[0][0]"),
}


@pytest.mark.parametrize("name", TRACES)
def test_traces_of_padding_are_found_and_taken_away(name: str) -> None:
    """Named by where they are; the check itself leaves none."""
    leave, path = TRACES[name]
    model = Layer(leave)
    with torch.no_grad():
        report = FixedShape(model, {"x": 0}, [16]).check(example())
    assert report.verdict == "unsafe"
    assert report.outputs[path].kind == "state"
    assert report.outputs[""].kind == "safe"
    assert (model.aux_loss, model.calls, model.kept) == (None, 0, {"list": [], "set": set()})
    assert (LOG, LAST, TRACKER.rows, Tracker.peak) == ([], None, [], None)
    assert not hasattr(model.inner, "last")
    assert float(TOTAL) == float(model.total) == 0.0
    assert last_of.__defaults__ == ([],)


def test_traces_that_are_those_of_the_batch_are_harmless() -> None:
    """A counter of calls, what is set up once, and a sum over the real rows only."""

    def leave(model: Any, x: Any) -> None:
        model.calls += 1
        model.kept.setdefault("scale", torch.ones(3))
        LOG.append("called")

    assert verdict_of(Layer(leave)).safe
    model = Layer(lambda m, x: None)

    def masked(x: Any, real: Any) -> Any:
        model.aux_loss = torch.where(real[:, None], x, 0.0).sum() / real.sum()
        return model.inner(x)

    assert verdict_of(masked, mask="real").safe
    assert LOG == []


def test_closed_over_values_and_arguments_are_state_too() -> None:
    """Tensors that are written to, names that are bound again, arguments without rows."""
    total, seen = torch.zeros(()), 0

    def count(x: Any) -> Any:
        nonlocal seen
        seen += len(x)
        total.add_(len(x))
        return x * 2

    report = verdict_of(count)
    assert {"variable total", "variable seen"} <= report.harmful.keys()
    assert (float(total), seen) == (0.0, 0)

    def add_up(x: Any, into: Any) -> Any:
        into["sum"] += x.sum(0)
        return x * 2

    into = {"sum": torch.zeros(WIDTH)}
    report = FixedShape(add_up, {"x": 0}, [16]).check(example(), into)
    assert report.outputs["argument into.sum"].kind == "state"
    assert not into["sum"].any()


def test_generators_of_numbers_are_state() -> None:
    """The state of one that an object holds goes on with what was drawn."""
    generator = torch.Generator().manual_seed(1)
    before = generator.get_state()

    def noisy(x: Any) -> Any:
        return x + torch.rand(x.shape, generator=generator)

    report = verdict_of(noisy)
    assert report.verdict == "unsafe"
    assert report.outputs["variable generator"].kind == "state"
    assert torch.equal(generator.get_state(), before)


def test_what_cannot_be_looked_into_makes_it_unknown() -> None:
    """It is named, with its type; a harmless looking result is not called safe."""
    numbers = (number for number in range(10**9))

    def hidden(x: Any) -> Any:
        next(numbers)
        return x * 2

    report = verdict_of(hidden)
    assert (report.verdict, report.safe, report.harmful) == ("unknown", False, {})
    assert report.unseen == ("variable numbers (builtins.generator)",)
    report.require_harmless()

    def counted(x: Any) -> Any:
        return x * next(numbers)

    report = verdict_of(counted)
    assert report.outputs[""].kind == "unknown"
    assert "two runs with the same padding differ" in report.outputs[""].note


def test_more_than_can_be_followed_makes_it_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds are said as what they are."""
    many = [[index, "text"] for index in range(200)]
    large = torch.zeros(64)

    def use(x: Any) -> Any:
        return x * many[0][0] + large[0]

    assert verdict_of(use).safe
    monkeypatch.setattr(side_effects, "MAX_BYTES", 100)
    assert verdict_of(use).unseen == ("variable large (256 bytes, too many to be copied)",)
    monkeypatch.setattr(reachable, "MAX_OBJECTS", 100)
    assert "everything else (more than 100 objects)" in verdict_of(use).unseen


def test_other_threads_keep_what_they_wait_for() -> None:
    """Locks, events and queues are never put back."""
    ready, waiting = threading.Event(), queue.Queue[int]()

    def tell(x: Any) -> Any:
        ready.set()
        waiting.put(1)
        return x * 2

    report = verdict_of(tell)
    assert ready.is_set()
    assert waiting.qsize() > 1
    assert report.unseen == ("variable waiting (queue.Queue)",)
