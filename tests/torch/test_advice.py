"""Advice is code: each fix is followed as its sentence says, and torch counts what recompiles then.

A case is a program, what its finding must advise, and the same program with that done.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._dynamo import utils  # noqa: E402

import compilediag  # noqa: E402

Run = Callable[[Callable[..., Any]], list[Any]]
"""Calls a compiled function as the program does, and returns its results."""


@dataclass(frozen=True)
class Case:
    """A program before and after its advice."""

    function: Callable[..., Any]
    run: Run
    rule: str
    advice: str
    """A part of the fix sentence."""
    fixed_run: Run
    fixed_function: Callable[..., Any] | None = None


def rows(*sizes: int) -> list[Any]:
    return [torch.arange(float(size * 4)).reshape(size, 4) for size in sizes]


def calls(arguments: Sequence[Any]) -> Run:
    return lambda compiled: [compiled(*each) for each in arguments]


def double(x: Any) -> Any:
    return x * 2


def weighted(x: Any, weights: Any) -> Any:
    return (x * weights).sum(0)


def by_column(x: Any) -> Any:
    total = torch.zeros(len(x))
    for column in range(x.size(1)):
        total = total + x[:, column]
    return total


def gated(x: Any, level: float) -> Any:
    return x * level if level > 0 else x - 1


def scaled(x: Any, level: float) -> Any:
    return x * level + 1


def summed(batch: dict[str, Any]) -> Any:
    return batch["x"] + batch["bias"] if "bias" in batch else batch["x"] + 0


def shifted(x: Any, bias: Any) -> Any:
    return x if bias is None else x + bias


def padded_columns(x: Any) -> Any:
    return torch.nn.functional.pad(x, (0, 5 - x.size(1)))


SIZES = [(x,) for x in rows(8, 8, 5, 6)]
PAIRS = [(x, x + 1) for x in rows(8, 5, 6)]
WIDE = [(torch.ones(2, width),) for width in (3, 5, 4)]
X = torch.arange(4.0)
OTHER = X + 1


def marked(arguments: Sequence[Any], *positions: int) -> Run:
    """Each call with its tensors marked as the finding prints it."""

    def run(compiled: Callable[..., Any]) -> list[Any]:
        for each in arguments:
            for position in positions:
                torch._dynamo.maybe_mark_dynamic(each[position], 0)
        return [compiled(*each) for each in arguments]

    return run


def both_ways(first: Sequence[Any], then: Run) -> Run:
    """Warmed up with both, outside of what is counted."""

    def run(compiled: Callable[..., Any]) -> list[Any]:
        for each in first:
            compiled(*each)
        utils.clear_compilation_metrics()
        return then(compiled)

    return run


REQUIRING = X.clone().requires_grad_()
CASES = {
    "one size": Case(double, calls(SIZES), "CD105", "maybe_mark_dynamic(x, 0)", marked(SIZES, 0)),
    "tensors of one length": Case(
        weighted,
        calls(PAIRS),
        "CD105",
        "maybe_mark_dynamic(x, 0), torch._dynamo.maybe_mark_dynamic(weights, 0)",
        marked(PAIRS, 0, 1),
    ),
    "a loop over the size": Case(
        by_column,
        calls(WIDE),
        "CD105",
        "pad to 5",
        lambda compiled: [compiled(padded_columns(x)) for (x,) in WIDE],
    ),
    "a first size of one": Case(
        double,
        calls([(x,) for x in rows(1, 5, 6)]),
        "CD105",
        "2 or more",
        lambda compiled: [
            result[:size]
            for size, result in zip(
                (1, 5, 6), marked([(x,) for x in rows(2, 5, 6)], 0)(compiled), strict=True
            )
        ],
    ),
    "a branch on a number": Case(
        gated,
        calls([(X, 1.0), (X, -1.0), (X, 2.0)]),
        "CD107",
        "before the compiled call",
        lambda compiled: [
            compiled(X, torch.tensor(level), torch.tensor(level > 0)) for level in (1.0, -1.0, 2.0)
        ],
        lambda x, level, positive: torch.where(positive, x * level, x - 1),
    ),
    "a number": Case(
        scaled,
        calls([(X, 1.5), (X, 2.5)]),
        "CD107",
        "0-dim tensor",
        calls([(X, torch.tensor(1.5)), (X, torch.tensor(2.5))]),
    ),
    "a missing key": Case(
        summed,
        calls([({"x": X, "bias": OTHER},), ({"x": X},)]),
        "CD108",
        "same keys",
        calls([({"x": X, "bias": OTHER},), ({"x": X, "bias": torch.zeros(4)},)]),
    ),
    "an optional tensor": Case(
        shifted,
        calls([(X, OTHER), (X, None), (X, OTHER)]),
        "CD114",
        "zeros",
        calls([(X, OTHER), (X, torch.zeros(4)), (X, OTHER)]),
    ),
    "requires_grad": Case(
        double,
        calls([(X,), (REQUIRING,), (X,)]),
        "CD106",
        "warm up `x` with and without requires_grad",
        both_ways([(X,), (REQUIRING,)], calls([(X,), (REQUIRING,), (X,)])),
    ),
}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    utils.clear_compilation_metrics()
    yield
    torch._dynamo.reset()


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, backend="eager")


def recompiles() -> int:
    """As torch itself counts them."""
    return sum(bool(row.recompile_reason) for row in utils.get_compilation_metrics())


@pytest.mark.parametrize("name", CASES)
def test_followed_literally(name: str) -> None:
    """The advice names what to do; done, nothing recompiles, and the results are the same."""
    case = CASES[name]
    with compilediag.watch() as seen:
        before = case.run(compiled(case.function))
    assert recompiles() > 0
    found = [item for item in seen.findings if item.rule == case.rule]
    assert len(found) == 1, [item.title for item in seen.findings]
    assert case.advice in found[0].fix.summary
    torch._dynamo.reset()
    utils.clear_compilation_metrics()
    after = case.fixed_run(compiled(case.fixed_function or case.function))
    assert recompiles() == 0
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(one, other)


def test_no_advice_names_a_temporary() -> None:
    """What lives across a graph break cannot be marked by anybody."""

    def broken(x: Any) -> Any:
        total = x.sum(1)
        torch._dynamo.graph_break()
        return total * 2

    with compilediag.watch() as seen:
        for x in rows(8, 5, 6):  # new ones: a mark stays on its tensor
            compiled(broken)(x)
    sizes = [item for item in seen.findings if item.rule == "CD105"]
    marks = [
        mark for item in sizes for mark in re.findall(r"mark_dynamic\((\w+)", item.fix.summary)
    ]
    assert marks == ["x"]
