"""Where a size was made a constant twice no mark helps; where it only looks so, one does."""

from collections.abc import Iterable
from typing import Any

import torch
from torch._dynamo import utils

import compilediag
from compilediag.diagnosis.findings import Finding
from compilediag.runs.watch import watch

nn = torch.nn
NO_MARK = "which no mark changes"


class Broken(nn.Module):
    """A graph break makes the code of each instance a frame of its own."""

    def __init__(self, columns: int, out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(columns, out)

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        torch._dynamo.graph_break()
        return y.relu()


def sizes_of(function: Any, inputs: Iterable[Any]) -> list[Finding]:
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="eager")
    with compilediag.watch() as seen, torch.no_grad():
        for x in inputs:
            compiled(x)
    return [item for item in seen.findings if item.rule == "CD105"]


def rows(*sizes: int) -> list[Any]:
    return [torch.ones(size, 3) for size in sizes]


def test_each_instance_meets_its_second_size_once() -> None:
    """Two entries of the first size recompile for the second one, and both are dynamic then."""
    found = sizes_of(nn.Sequential(Broken(3, 4), Broken(4, 2)), rows(19, 19, 18, 18, 17))
    assert found
    assert not [item.title for item in found if NO_MARK in item.fix.summary]


def test_a_second_size_of_one_is_no_constant() -> None:
    """torch keeps 0 and 1 apart always; the other sizes stay dynamic."""
    one, others = sizes_of(nn.Linear(3, 2), rows(4, 4, 1, 2, 3, 5))
    assert NO_MARK not in one.fix.summary + others.fix.summary


def test_a_loop_makes_every_size_a_constant() -> None:
    def looped(x: Any) -> Any:
        return sum(x[row] for row in range(x.shape[0]))

    (found,) = sizes_of(looped, rows(4, 5, 6))
    assert NO_MARK in found.fix.summary


def test_an_int_of_a_shape_that_becomes_one() -> None:
    """Symbolic from the second shape on, with `shape[1] != 1`; torch names no line of ours."""
    compiled = torch.compile(lambda x, shape: x.reshape(shape) * 2, backend="eager")
    with compilediag.watch() as seen:
        for shape in ((2, 6), (3, 4), (12, 1)):
            compiled(torch.ones(12), shape)
    found = [(item.rule, item.variable) for item in seen.findings if item.severity != "info"]
    assert ("CD118", "shape[1]") in found
    assert "CD190" not in dict(found)
    reasons = [row.recompile_reason or "" for row in utils.get_compilation_metrics()]
    assert any("!= 1" in reason for reason in reasons)
    assert not any("compilediag" in reason.partition("#")[2] for reason in reasons)


def test_a_constant_of_an_attempt_that_was_given_up() -> None:
    """A break below an inlined call begins the trace anew: the final graph holds no constant."""

    def inner(x: Any) -> Any:
        y = sum(x[row] for row in range(x.shape[0]))
        torch._dynamo.graph_break()
        return y * 2

    torch._dynamo.reset()
    compiled = torch.compile(lambda x: inner(x * 2), backend="eager")
    with watch() as seen:
        for x in rows(4, 5, 6):
            compiled(x)
    guarded = [compile_id for _, _, compile_id in seen.timeline.size_guards]
    names = {item.compile_id: item.frame.function for item in seen.timeline.compiles}
    assert {names[item] for item in guarded} == {inner.__name__}
