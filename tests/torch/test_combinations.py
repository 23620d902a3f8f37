"""The advice on combinations of known values is code: it is followed, and torch counts."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch._dynamo import utils

import compilediag

X = torch.arange(4.0)
MET = [(False, False), (True, False), (False, True), (True, True), (False, True)]
"""What is probed and scaled in each step: the last new pair is of known values."""


def layer(x: Any, probed: Any, scaled: Any) -> Any:
    if scaled:
        x = x * 0.5
    return x + x.mean() if probed else x + 1


def recompiles_in(function: Callable[..., Any], calls: Iterable[tuple[Any, Any]]) -> int:
    """As torch itself counts them."""
    utils.clear_compilation_metrics()
    for probed, scaled in calls:
        torch.testing.assert_close(function(X, probed, scaled), layer(X, probed, scaled))
    return sum(bool(row.recompile_reason) for row in utils.get_compilation_metrics())


@pytest.fixture
def advice() -> str:
    """The fix of the combination that the program as it stands has."""
    torch._dynamo.reset()
    function = torch.compile(layer, backend="eager")
    with compilediag.watch() as seen:
        assert recompiles_in(function, MET) == 3
    found = {item.rule: item for item in seen.findings}
    assert found["CD120"].variable == "probed, scaled"
    assert [item.rule for item in seen.findings].count("CD107") == 2
    torch._dynamo.reset()
    return found["CD120"].fix.summary


def test_all_combinations_warmed_up(advice: str) -> None:
    """None recompiles afterwards."""
    pairs = list(itertools.product((False, True), repeat=2))
    assert "warm up each" in advice
    function = torch.compile(layer, backend="eager")
    assert recompiles_in(function, pairs) == len(pairs) - 1
    assert recompiles_in(function, MET) == 0


def test_a_value_whose_guard_nobody_has_seen_is_new() -> None:
    """The graph of the other flag asks for the type of the container alone, and takes any."""
    held: dict[str, float] = {}
    flag = False

    def read(x: Any) -> Any:
        if flag:
            return x * 2 if isinstance(held, dict) else x
        return x + len(held)

    torch._dynamo.reset()
    function = torch.compile(read, backend="eager")
    with compilediag.watch() as seen:
        function(X)
        flag = True
        function(X)
        flag, held["a"] = False, 1.0
        function(X)
    assert [event.causes[0].rule for event in seen.receipt.compile.events[1:]] == ["CD101", "CD102"]
