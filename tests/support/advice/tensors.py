"""Sizes and metadata of tensors that are passed (CD105, CD106, CD113, CD118)."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import compilediag
from advice.case import OTHER, X, case, compiled, rows, warmed
from compilediag.rules import objects as advice_of_containers
from compilediag.rules import tensors as advice_of_tensors
from compilediag.rules.sizes import advice as advice_of_sizes
from compilediag.rules.sizes import lines as advice_of_size_lines


def double(x: Any) -> Any:
    return x * 2


def all_of(function: Any, arguments: Sequence[Any]) -> list[Any]:
    return [function(*each) for each in arguments]


def marked(function: Any, arguments: Sequence[Any], *dimensions: int) -> list[Any]:
    """Each call with its tensors marked as the finding prints it."""
    for each in arguments:
        for tensor in each:
            for dimension in dimensions:
                torch._dynamo.maybe_mark_dynamic(tensor, dimension)
    return all_of(function, arguments)


def once_all(function: Any, arguments: Sequence[Any], first: Sequence[Any] = ()) -> list[Any]:
    all_of(function, first or arguments)
    warmed()
    return all_of(function, arguments)


def ones(*shapes: tuple[int, ...]) -> list[tuple[Any]]:
    return [(torch.ones(shape),) for shape in shapes]


# --- sizes ----------------------------------------------------------------------------------------


def unpadded(function: Any, sizes: Sequence[int], least: int) -> list[Any]:
    """Padded to a fixed number of rows, and the rows of the result that are real."""
    results = []
    for x in rows(*sizes):
        padded = functional.pad(x, (0, 0, 0, least - len(x)))
        results.append(function(padded)[: len(x)])
    return results


SIZES = (8, 8, 5, 6)
case(
    "one size",
    advice_of_sizes.MARKED,
    lambda: all_of(compiled(double), [(x,) for x in rows(*SIZES)]),
    lambda: marked(compiled(double), [(x,) for x in rows(*SIZES)], 0),
    lambda: unpadded(compiled(double), SIZES, 8),
)


def fixed(*, warm: bool) -> list[Any]:
    shaped = compilediag.FixedShape(
        compiled(double, dynamic=False), dims={"x": 0}, buckets=[4, 8, 16]
    )
    if warm:
        shaped.warmup(torch.ones(3, 4))
        warmed()
    return [shaped(x) for x in rows(3, 7, 12)]


case(
    "a size that a FixedShape pads",
    advice_of_sizes.PADDED,
    lambda: fixed(warm=False),
    lambda: fixed(warm=True),
)


def by_column(x: Any) -> Any:
    total = torch.zeros(len(x))
    for column in range(x.size(1)):
        total = total + x[:, column]
    return total


def folded(x: Any) -> Any:
    return x.sum(1)


def padded_columns(x: Any) -> Any:
    return functional.pad(x, (0, 5 - x.size(1)))


WIDTHS = ((2, 3), (2, 5), (2, 4))
case(
    "a loop over the size",
    advice_of_size_lines.ANY_SIZE,
    lambda: all_of(compiled(by_column), ones(*WIDTHS)),
    lambda: [compiled(by_column)(padded_columns(x)) for (x,) in ones(*WIDTHS)],
    lambda: marked(compiled(folded), ones(*WIDTHS), 1),
)


def from_two(function: Callable[..., Any]) -> list[Any]:
    results = []
    for size in (1, 5, 6):
        x = rows(max(size, 2))[0]
        torch._dynamo.maybe_mark_dynamic(x, 0)
        results.append(function(x)[:size])
    return results


case(
    "a first size of one",
    advice_of_sizes.SMALL,
    lambda: all_of(compiled(double), [(x,) for x in rows(1, 5, 6)]),
    lambda: from_two(compiled(double)),
    lambda: unpadded(compiled(double), (1, 5, 6), 6),
)


def marked_late(x: Any) -> Any:
    call, results = compiled(double), [x * 2]
    call(x)
    late = x.clone()
    torch._dynamo.mark_dynamic(late, 0)
    results.append(call(late))
    return results


case(
    "a late mark",
    advice_of_sizes.MARKED_LATE,
    lambda: marked_late(rows(4)[0]),
    lambda: marked(compiled(double), [(x,) for x in rows(4, 4)], 0),
)


def broken(x: Any) -> Any:
    total = x.sum(1)
    torch._dynamo.graph_break()
    return total * 2


def unbroken(x: Any) -> Any:
    return x.sum(1) * 2


def padded_before(sizes: Sequence[int]) -> list[Any]:
    call, results = compiled(broken), []
    for x in rows(*sizes):
        results += [call(functional.pad(x, (0, 0, 0, 8 - len(x))))[: len(x)]]
    return results


case(
    "a size across a graph break",
    advice_of_sizes.MARKED,
    lambda: all_of(compiled(broken), [(x,) for x in rows(8, 5, 6)]),
    lambda: marked(compiled(unbroken), [(x,) for x in rows(8, 5, 6)], 0),
    lambda: padded_before((8, 5, 6)),
)

# --- a dynamic size that leaves its range ---------------------------------------------------------


def dynamic(function: Any, *shapes: tuple[int, ...]) -> list[Any]:
    return all_of(compiled(function, dynamic=True), ones(*shapes))


def unbacked() -> list[Any]:
    call, results = compiled(double), []
    for (x,) in ones((4, 3), (1, 3), (5, 3)):
        torch._dynamo.decorators.mark_unbacked(x, 0)
        results.append(call(x))
    return results


case(
    "a dynamic size of one",
    advice_of_sizes.AT_LEAST_TWO,
    lambda: dynamic(double, (4, 3), (1, 3), (5, 3)),
    lambda: [
        result[:size]
        for size, result in zip((4, 1, 5), dynamic(double, (4, 3), (2, 3), (5, 3)), strict=True)
    ],
    unbacked,
)


def limited(x: Any) -> Any:
    return x * 2 if len(x) > 8 else x + 1


def limited_outside(arguments: Sequence[Any]) -> list[Any]:
    large, small = compiled(double, dynamic=True), compiled(added, dynamic=True)
    return [(large if len(x) > 8 else small)(x) for (x,) in arguments]


def added(x: Any) -> Any:
    return x + 1


case(
    "a branch on the size",
    advice_of_size_lines.TWO_SIDES,
    lambda: dynamic(limited, (4,), (12,), (6,)),
    lambda: once_all(compiled(limited, dynamic=True), ones((4,), (12,), (6,)), ones((5,), (11,))),
    lambda: limited_outside(ones((4,), (12,), (6,))),
)

# --- metadata -------------------------------------------------------------------------------------

IMAGES = torch.arange(48.0).reshape(2, 3, 2, 4)
LAST = IMAGES.to(memory_format=torch.channels_last)
case(
    "another dtype",
    advice_of_tensors.ONE_KIND,
    lambda: all_of(compiled(double), [(X,), (OTHER.double(),)])[:1],
    lambda: all_of(compiled(double), [(X,), (OTHER.double().to(torch.float32),)])[:1],
)
case(
    "channels_last in the first call only",
    advice_of_tensors.CHANNELS_LAST,
    lambda: all_of(compiled(double), [(LAST,), (IMAGES,)]),
    lambda: all_of(
        compiled(double), [(x.to(memory_format=torch.channels_last),) for x in (LAST, IMAGES)]
    ),
)


class Block(nn.Module):
    """One of a stack."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((4,), 0.5))

    def forward(self, x: Any) -> Any:
        return (x * self.weight).relu()


def stacked(*, requires: bool) -> Any:
    blocks = [Block() for _ in range(3)]
    for block in blocks:
        block.compile(backend="eager")
    for _ in range(2):
        hidden = torch.ones(4)
        if requires:
            hidden.requires_grad_()
        for block in blocks:
            hidden = block(hidden)
        hidden.sum().backward()
    return [block.weight.grad for block in blocks]


case(
    "stacked blocks",
    advice_of_tensors.GRADIENT_OF_INPUT,
    lambda: stacked(requires=False),
    lambda: stacked(requires=True),
)


def inferred_first(*, cloned: bool = False, mode: Any = torch.inference_mode) -> Any:
    """What is made in the block is an inference tensor; what comes from outside it is not."""
    call = compiled(double)
    with mode():
        made = call(X * 2)
        return [made, call(X.clone() if cloned else X)]


case(
    "a tensor from outside inference mode",
    advice_of_tensors.INFERENCE_TENSOR,
    inferred_first,
    lambda: inferred_first(cloned=True),
    lambda: inferred_first(mode=torch.no_grad),
)


def add_to(x: Any, y: Any) -> Any:
    return x * 2 + y


case(
    "one tensor twice",
    advice_of_containers.DISTINCT,
    lambda: all_of(compiled(add_to), [(X, OTHER), (X, X)]),
    lambda: all_of(compiled(add_to), [(X, OTHER), (X, X.clone())]),
)
