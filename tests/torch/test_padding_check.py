"""`FixedShape.check`: sixteen kinds of functions, and what padding does to each of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from compilediag_harness.shapes.fixed import FixedShape  # noqa: E402
from compilediag_harness.shapes.padding_check import PaddingReport  # noqa: E402
from compilediag_harness.shapes.shape_errors import PaddingContaminates  # noqa: E402

nn = torch.nn
ROWS, WIDTH = 11, 8


class MixtureWithCapacity(nn.Module):
    """Two experts that take at most eight rows each; rows beyond that pass as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, 2)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))

    def forward(self, x: Any) -> Any:
        score = self.gate(x)
        out = x.clone()
        for number, expert in enumerate(self.experts):
            mine = score.argmax(-1) == number
            order = torch.where(mine, score[:, number], -torch.inf).argsort(descending=True)[:8]
            taken = torch.zeros_like(mine).index_fill(0, order, value=True) & mine
            out = torch.where(taken[:, None], expert(x), out)
        return out


def attention(x: Any, real: Any = None) -> Any:
    """Rows attend to rows."""
    score = x @ x.T
    if real is not None:
        score = score.masked_fill(~real, -torch.inf)
    return score.softmax(-1) @ x


def masked_sum(x: Any, real: Any) -> Any:
    return (x * real[:, None]).sum(0) / real.sum()


def selected_sum(x: Any, real: Any) -> Any:
    return torch.where(real[:, None], x, 0.0).sum(0) / real.sum()


Maker = Callable[[], Callable[..., Any]]

KINDS: dict[str, tuple[Maker, str | None, str]] = {
    "linear": (lambda: nn.Linear(WIDTH, WIDTH), None, "safe"),
    "layer norm": (lambda: nn.LayerNorm(WIDTH), None, "safe"),
    "batch norm, eval": (lambda: nn.BatchNorm1d(WIDTH).eval(), None, "safe"),
    "batch norm, train": (lambda: nn.BatchNorm1d(WIDTH).train(), None, "contaminated"),
    "cumsum": (lambda: lambda x: x.cumsum(0), None, "safe"),
    "softmax over rows": (lambda: lambda x: x.softmax(0), None, "contaminated"),
    "flip": (lambda: lambda x: x.flip(0), None, "contaminated"),
    "sort": (lambda: lambda x: x.sort(0).values, None, "contaminated"),
    "attention": (lambda: attention, None, "contaminated"),
    "attention, masked": (lambda: attention, "real", "nan_leak"),
    "experts with capacity": (MixtureWithCapacity, None, "contaminated"),
    "mean": (lambda: lambda x: x.mean(), None, "reduced"),
    "mean, multiplied by the mask": (lambda: masked_sum, "real", "nan_leak"),
    "mean, selected by the mask": (lambda: selected_sum, "real", "safe"),
    "divided by the length": (lambda: lambda x: x / x.shape[0], None, "parity"),
    "dropout": (lambda: lambda x: nn.functional.dropout(x, 0.5), None, "rng"),
}


def example() -> Any:
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(3))


def argument_of(function: Any) -> str:
    return "input" if isinstance(function, nn.Module) and not hasattr(function, "gate") else "x"


def report_of(name: str) -> PaddingReport:
    make, mask, _ = KINDS[name]
    torch.manual_seed(0)
    function = make()
    fixed = FixedShape(function, {argument_of(function): 0}, [16], mask=mask)
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


def test_there_are_sixteen_kinds() -> None:
    """None was lost."""
    assert len(KINDS) == 16


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
    assert report.probes == ("zeros", "real rows", "large", "larger", "nan")
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


def test_integer_arguments_get_valid_padding_only() -> None:
    """Large made-up ids would be out of range of the table."""
    torch.manual_seed(0)
    table = nn.Embedding(5, 3)
    ids = torch.tensor([0, 4, 2, 1])
    assert FixedShape(table, {"input": 0}, [8]).check(ids).safe


def test_full_batches_are_checked_with_fewer_rows() -> None:
    """An example as large as the largest size leaves room for padding all the same."""
    report = FixedShape(lambda x: x.softmax(0), {"x": 0}, [4, 8]).check(example())
    assert (report.size, report.run) == ((6,), (8,))
    assert report.outputs[""].kind == "contaminated"
