"""Sizes that were declared dynamic (CD154), and lines that need their number: each is named, and
the advice, followed, compiles once."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._dynamo import utils  # noqa: E402

import compilediag  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, backend="eager")


def recompiles() -> int:
    """As torch itself counts them."""
    return sum(bool(row.recompile_reason) for row in utils.get_compilation_metrics())


def to_four(x: Any) -> Any:
    return x.reshape(4, 2, 2).sum(1)


def to_own_size(x: Any) -> Any:
    return x.reshape(-1, 2, 2).sum(1)


def looped(x: Any) -> Any:
    total = torch.zeros(4)
    for row in range(x.size(0)):
        total = total + x[row]
    return total


def summed_rows(x: Any) -> Any:
    return torch.zeros(4) + x.sum(0)


def keyed(x: Any) -> Any:
    return x * {3: 2.0}.get(x.size(0), 2.0)


def without_key(x: Any) -> Any:
    return x * 2.0


def with_created(x: Any) -> Any:
    return torch.cat([x, torch.ones(4, 1)], 1)


def with_created_alike(x: Any) -> Any:
    return torch.cat([x, torch.ones(x.size(0), 1)], 1)


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


@dataclass(frozen=True)
class Promise:
    """A function that breaks the promise of a mark, and what its advice makes of it."""

    function: Callable[..., Any]
    text: str
    """In the line that breaks it."""
    advice: str
    fixed: Callable[..., Any]
    mark: Callable[..., None] = torch._dynamo.mark_dynamic
    fixed_mark: Callable[..., None] = torch._dynamo.mark_dynamic
    warmed: tuple[int, ...] = ()
    sizes: tuple[int, ...] = (4, 6, 8)
    count: int = 1
    """Arguments, of which the first one is marked."""


def in_range(x: Any, dimension: int) -> None:
    torch._dynamo.mark_dynamic(x, dimension, min=2, max=64)


def no_mark(x: Any, dimension: int) -> None:
    pass


PROMISES = {
    "a reshape": Promise(to_four, "reshape", "write -1", to_own_size),
    "a loop": Promise(looped, "range", "an operation on the whole tensor", summed_rows),
    "a loop, padded": Promise(
        looped, "range", "remove the mark and pad to a fixed size", looped,
        fixed_mark=no_mark, sizes=(4, 4),
    ),
    "a key": Promise(keyed, "get", "as a size only", without_key),
    "a created tensor": Promise(with_created, "cat", "where it is created", with_created_alike),
    "another argument": Promise(added, "x + other", "mark it too", added, count=2),
    "a branch": Promise(
        four_apart, "== 4", "one graph for 4, one for all other sizes", four_apart,
        fixed_mark=torch._dynamo.maybe_mark_dynamic, warmed=(4, 5), sizes=(4, 5, 6),
    ),
    "a check": Promise(
        checked, "_check", "maybe_mark_dynamic", checked,
        fixed_mark=torch._dynamo.maybe_mark_dynamic, sizes=(4, 4),
    ),
    "an assertion, removed": Promise(
        asserted, "assert", "remove the assertion of this line", without_key
    ),
    "a range": Promise(
        bounded, "< 10", "without min and max", bounded, mark=in_range, warmed=(4, 12),
        sizes=(4, 6, 12, 14),
    ),
    "a multiple": Promise(
        even, "% 2", "without min and max", even, mark=in_range, warmed=(4, 5), sizes=(6, 7, 8),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROMISES)
def test_a_promise_kept_as_advised(name: str) -> None:
    """The line named is the one that breaks it; with the advice torch compiles, and no more."""
    case = PROMISES[name]
    broken = [torch.arange(16.0).reshape(4, 4) for _ in range(case.count)]
    case.mark(broken[0], 0)
    with compilediag.watch() as seen, pytest.raises(Exception, match="Constraints violated"):
        compiled(case.function)(*broken)
    (finding,) = seen.findings
    assert (finding.rule, seen.diagnosis.verdict) == ("CD154", "findings")
    assert finding.location is not None
    line = linecache.getline(finding.location.file, finding.location.line)
    assert case.text in line
    assert case.advice in finding.fix.summary
    torch._dynamo.reset()
    fixed = compiled(case.fixed)
    for size in case.warmed:
        fixed(*marked_alike(case, size))
    utils.clear_compilation_metrics()
    for size in case.sizes:
        arguments = marked_alike(case, size)
        torch.testing.assert_close(fixed(*arguments), case.fixed(*arguments))
    assert recompiles() == 0
    assert len(utils.get_compilation_metrics()) == (0 if case.warmed else 1)


def marked_alike(case: Promise, size: int) -> list[Any]:
    arguments = [torch.arange(size * 4.0).reshape(size, 4) for _ in range(case.count)]
    for each in arguments:
        case.fixed_mark(each, 0)
    return arguments


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    ("function", "text", "advice"),
    [
        (looped, "range", "operation on the whole tensor"),
        (keyed, "get", "as a size only"),
        (four_apart, "== 4", "each side of the branch"),
    ],
)
def test_a_size_that_stays_a_number(
    function: Callable[..., Any], text: str, advice: str, dynamic: bool | None
) -> None:
    """Automatic dynamic and dynamic=True try, and the line that undoes it is named, not a mark."""
    with compilediag.watch() as seen:
        call = torch.compile(function, backend="eager", dynamic=dynamic)
        for size in (4, 5, 7):
            call(torch.ones(size, 3 + (function is looped)))
    (finding,) = (each for each in seen.findings if each.rule == "CD105")
    assert finding.location is not None
    assert text in linecache.getline(finding.location.file, finding.location.line)
    assert advice in finding.fix.summary
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
