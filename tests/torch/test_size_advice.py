"""Sizes that were declared dynamic (CD154), and lines that need their number: each is named, and
the advice, followed, compiles once."""

import linecache
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo import utils

import compilediag
from compilediag.views.lookups import list_history

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, backend="eager")


def recompiles() -> int:
    """As torch itself counts them."""
    return sum(bool(row.recompile_reason) for row in utils.get_compilation_metrics())


def to_four(x: Any) -> Any:
    return x.reshape(4, 2, 2).sum(1)


def looped(x: Any) -> Any:
    total = torch.zeros(4)
    for row in range(x.size(0)):
        total = total + x[row]
    return total


def summed_rows(x: Any) -> Any:
    return torch.zeros(4) + x.sum(0)


def keyed(x: Any) -> Any:
    return x * {3: 2.0}.get(x.size(0), 2.0)


def with_created(x: Any) -> Any:
    return torch.cat([x, torch.ones(4, 1)], 1)


def added(x: Any, other: Any) -> Any:
    return x + other


def four_apart(x: Any) -> Any:
    if x.size(0) == 4:
        return x + 1
    return x * 2


def checked(x: Any) -> Any:
    torch._check(x.size(0) == 4)
    return x * 2


def asserted(x: Any) -> Any:
    assert x.size(0) == 4
    return x * 2


def bounded(x: Any) -> Any:
    if x.size(0) < 10:
        return x + 1
    return x - 1


def even(x: Any) -> Any:
    if x.size(0) % 2 == 0:
        return x + 1
    return x - 1


def in_range(x: Any, dimension: int) -> None:
    torch._dynamo.mark_dynamic(x, dimension, min=2, max=64)


mark = torch._dynamo.mark_dynamic


@pytest.mark.parametrize(
    ("function", "text", "mark", "count"),
    [
        (to_four, "reshape", mark, 1),
        (looped, "range", mark, 1),
        (keyed, "get", mark, 1),
        (with_created, "cat", mark, 1),
        (added, "x + other", mark, 2),
        (four_apart, "== 4", mark, 1),
        (checked, "_check", mark, 1),
        (asserted, "assert", mark, 1),
        (bounded, "< 10", in_range, 1),
        (even, "% 2", in_range, 1),
    ],
)
def test_the_line_that_breaks_a_promise(function, text, mark, count) -> None:
    """Of the arguments the first one is marked."""
    broken = [torch.arange(16.0).reshape(4, 4) for _ in range(count)]
    mark(broken[0], 0)
    with compilediag.watch() as seen, pytest.raises(Exception, match="Constraints violated"):
        compiled(function)(*broken)
    (finding,) = seen.findings
    assert (finding.rule, seen.diagnosis.verdict) == ("CD154", "findings")
    assert text in linecache.getline(finding.location.file, finding.location.line)
    assert finding.fix.summary == (
        "change this line so that it works for every size, or use torch._dynamo.maybe_mark_dynamic"
    )


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    ("function", "text", "advice"),
    [
        (looped, "range", "{line} loops over it"),
        (keyed, "get", "{line} takes it as a number"),
        (four_apart, "== 4", "each side of the branch of {line}"),
    ],
)
def test_a_size_that_stays_a_number(function, text, advice, dynamic) -> None:
    """Automatic dynamic and dynamic=True try, and the line that undoes it is named, not a mark."""
    with compilediag.watch() as seen:
        call = torch.compile(function, backend="eager", dynamic=dynamic)
        for size in (4, 5, 7):
            call(torch.ones(size, 3 + (function is looped)))
    (finding,) = (each for each in seen.findings if each.rule == "CD105")
    assert text in linecache.getline(finding.location.file, finding.location.line)
    place = finding.location
    line = f"{place.file.rpartition('/')[2]}:{place.line}"
    assert advice.format(line=line) in finding.fix.summary
    assert "mark_dynamic" not in finding.fix.summary


def test_a_constant_of_a_branch() -> None:
    """Warmed up on both sides as the finding of the other side advises, nothing recompiles."""

    def seven_apart(x: Any) -> Any:
        if x.size(0) == 7:
            return x + 1
        return x * 2

    with compilediag.watch() as seen:
        call = compiled(seven_apart)
        for size in (4, 5, 6, 7, 8):
            call(torch.ones(size))
    (finding,) = (each for each in seen.findings if each.rule == "CD118")
    assert "equal" not in finding.title
    assert "each side of the branch" in finding.fix.summary
    torch._dynamo.reset()
    call = compiled(seven_apart)
    for size in (4, 5, 7):
        call(torch.ones(size))
    utils.clear_compilation_metrics()
    for size in (4, 5, 6, 7, 8):
        torch.testing.assert_close(call(torch.ones(size)), seven_apart(torch.ones(size)))
    assert recompiles() == 0


def test_two_functions_of_one_name_are_two_findings() -> None:
    """As `forward` of two classes in one file: each has its own line, values and compiles."""

    class Halved(torch.nn.Module):
        def forward(self, x):
            return x * 0.5

    class Doubled(torch.nn.Module):
        def forward(self, x):
            return x * 2

    first, second = compiled(Halved()), compiled(Doubled())
    with compilediag.watch() as seen:
        for step, size in ((first, 4), (first, 5), (second, 7), (second, 9)):
            step(torch.ones(size))
    sizes = {found.location.line: list_history(found, seen.receipt) for found in seen.findings}
    assert [sizes[line] for line in sorted(sizes)] == [["[4]", "[5]"], ["[7]", "[9]"]]


def test_a_number_made_of_two_sizes() -> None:
    """As many chunks as rays and samples make: a graph for each product, not for two sides."""

    def chunked(x: Any) -> Any:
        flat = x.reshape(-1, 2)
        return torch.cat([flat[at : at + 4] * 2 for at in range(0, flat.shape[0], 4)])

    step = compiled(chunked)
    with compilediag.watch() as seen:
        for sizes in ((4, 3), (5, 6), (6, 7), (7, 9)):
            step(torch.ones(*sizes, 2))
    (found,) = (found for found in seen.findings if found.rule == "CD118")
    assert found.title == "graph for one size, or for all but one"
    each, needs = found.fix.summary.split(", because test_size_advice.py:")
    assert each == "torch makes a graph for each size of `x.size()[1]*x.size()[0]`"
    assert "loops over it" in needs


@pytest.mark.parametrize("first", [0, 4])
def test_a_view_that_begins_within_its_tensor(first: int) -> None:
    """A dynamic graph that is made for one takes none that begins with the tensor: no recipe."""
    parts = torch.ones(12, 4).split(4)
    with compilediag.watch() as seen:
        call = compiled(summed_rows)
        for part in (parts[first // 4], parts[2][:2], parts[0]):
            call(part)
    (finding,) = (each for each in seen.findings if each.rule == "CD105")
    assert (finding.fix.label == "fix") == (first == 0)
