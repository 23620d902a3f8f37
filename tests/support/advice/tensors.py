"""Sizes and metadata of tensors that are passed (CD105, CD106, CD113, CD118)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import compilediag
from advice.case import OTHER, X, case, compiled, rows, warmed


def double(x: Any) -> Any:
    return x * 2


def weighted(x: Any, weights: Any) -> Any:
    return (x * weights).sum(0)


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
    ("CD105", None),
    lambda: all_of(compiled(double), [(x,) for x in rows(*SIZES)]),
    lambda: marked(compiled(double), [(x,) for x in rows(*SIZES)], 0),
    lambda: unpadded(compiled(double), SIZES, 8),
)


def pairs() -> list[Any]:
    return [(x, x + 1) for x in rows(8, 5, 6)]


def masked_pairs() -> list[Any]:
    call, results = compiled(weighted), []
    for x, weights in pairs():
        missing = (0, 0, 0, 8 - len(x))
        results += [call(functional.pad(x, missing), functional.pad(weights, missing))]
    return results


case(
    "tensors of one length",
    ("CD105", None),
    lambda: all_of(compiled(weighted), pairs()),
    lambda: marked(compiled(weighted), pairs(), 0),
    masked_pairs,
)
PLANES = ((4, 4, 2), (6, 4, 2), (6, 7, 2), (5, 9, 2))
case(
    "two dimensions",
    ("CD105", None),
    lambda: all_of(compiled(double), ones(*PLANES)),
    lambda: marked(compiled(double), ones(*PLANES), 0, 1),
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
    ("CD105", "padded"),
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


APART = "warm up one size for each side of the branch of this line"
"""Where the line that needs the size is known."""
WIDTHS = ((2, 3), (2, 5), (2, 4))
case(
    "a loop over the size",
    ("CD105", "constant"),
    lambda: all_of(compiled(by_column), ones(*WIDTHS)),
    lambda: [compiled(by_column)(padded_columns(x)) for (x,) in ones(*WIDTHS)],
    lambda: marked(compiled(folded), ones(*WIDTHS), 1),
    told="by an operation on the whole tensor; or pad to",
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
    ("CD105", "small"),
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
    ("CD105", "marking"),
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
    ("CD105", "resumed"),
    lambda: all_of(compiled(broken), [(x,) for x in rows(8, 5, 6)]),
    lambda: marked(compiled(unbroken), [(x,) for x in rows(8, 5, 6)], 0),
    lambda: padded_before((8, 5, 6)),
    told="assign `each[0]` to a variable t, call torch._dynamo.maybe_mark_dynamic(t, 0)",
    # of the caller, whose size it follows
)


@torch.compiler.disable
def kept(x: Any) -> Any:
    return x[x > 0]


def positive(x: Any) -> Any:
    return kept(x) * 2


def all_positive(x: Any) -> Any:
    return torch.where(x > 0, x, 0.0) * 2


def masks(function: Any) -> list[Any]:
    call, results = compiled(function), []
    for size in (5, 6, 7):
        x = torch.arange(-2.0, float(size))
        torch._dynamo.maybe_mark_dynamic(x, 0)
        results.append(call(x)[-size:])
    return [result[result > 0] for result in results]


case(
    "a size that is made at a graph break",
    ("CD105", "resumed"),
    lambda: masks(positive),
    lambda: masks(all_positive),
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
    ("CD118", "zero_one"),
    lambda: dynamic(double, (4, 3), (1, 3), (5, 3)),
    lambda: [
        result[:size]
        for size, result in zip((4, 1, 5), dynamic(double, (4, 3), (2, 3), (5, 3)), strict=True)
    ],
    unbacked,
)


def by_two(x: Any) -> Any:
    return x.reshape(-1, 2).sum(1) if len(x) % 2 == 0 else x[:-1].reshape(-1, 2).sum(1) + x[-1]


case(
    "a size that must be even",
    ("CD118", "divisibility"),
    lambda: dynamic(by_two, (4,), (6,), (5,))[:2],
    lambda: dynamic(by_two, (4,), (6,), (6,))[:2],
    told=APART,
)


def outer(x: Any, y: Any) -> Any:
    return x[:, None] * 2, y * 3


def shapes_of(*sizes: tuple[int, int]) -> list[Any]:
    return [(torch.ones(one), torch.ones(other)) for one, other in sizes]


def without_duck(arguments: Sequence[Any]) -> list[Any]:
    with torch.fx.experimental._config.patch(use_duck_shape=False):
        return all_of(compiled(outer, dynamic=True), arguments)


case(
    "sizes that are equal by accident",
    ("CD118", "duck_equal"),
    lambda: all_of(compiled(outer, dynamic=True), shapes_of((4, 4), (5, 7)))[1:],
    lambda: all_of(compiled(outer, dynamic=True), shapes_of((4, 6), (5, 7)))[1:],
    lambda: without_duck(shapes_of((4, 4), (5, 7)))[1:],
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
    ("CD118", None),
    lambda: dynamic(limited, (4,), (12,), (6,)),
    lambda: once_all(compiled(limited, dynamic=True), ones((4,), (12,), (6,)), ones((5,), (11,))),
    lambda: limited_outside(ones((4,), (12,), (6,))),
    told=APART,
)


def equal_or_not(x: Any, y: Any) -> Any:
    return x + y if len(x) == len(y) else x * 2


def equal_sizes(*sizes: tuple[int, int], first: Any = None) -> list[Any]:
    with torch.fx.experimental._config.patch(use_duck_shape=False):
        call = compiled(equal_or_not, dynamic=True)
        return once_all(call, shapes_of(*sizes), shapes_of(*(first or sizes)))


def unequal() -> list[Any]:
    with torch.fx.experimental._config.patch(use_duck_shape=False):
        return all_of(compiled(equal_or_not, dynamic=True), shapes_of((4, 4), (5, 7)))


case(
    "sizes that must be equal",
    ("CD118", "equal"),
    lambda: unequal()[:1],
    lambda: all_of(compiled(equal_or_not, dynamic=True), shapes_of((4, 4), (5, 5)))[:1],
    lambda: equal_sizes((4, 4), (5, 7))[:1],
    told=APART,
)


def by_layout(x: Any) -> Any:
    return x * 2 if x.stride(0) == 4 else 2 * x


def layouts() -> list[tuple[Any]]:
    whole = torch.ones(2, 9, 4)
    return [(whole[:, -1:],), (whole[:, -1:].contiguous(),)]


case(
    "a layout that the graph excludes",
    ("CD118", "stride"),
    lambda: all_of(compiled(by_layout, dynamic=True), layouts()),
    lambda: all_of(compiled(by_layout, dynamic=True), [(x.contiguous(),) for (x,) in layouts()]),
    lambda: once_all(compiled(by_layout, dynamic=True), layouts()),
)

# --- metadata -------------------------------------------------------------------------------------

IMAGES = torch.arange(48.0).reshape(2, 3, 2, 4)
LAST = IMAGES.to(memory_format=torch.channels_last)
case(
    "another dtype",
    ("CD106", "dtype"),
    lambda: all_of(compiled(double), [(X,), (OTHER.double(),)])[:1],
    lambda: all_of(compiled(double), [(X,), (OTHER.double().to(torch.float32),)])[:1],
)
case(
    "another layout",
    ("CD106", "stride"),
    lambda: all_of(compiled(double), [(IMAGES,), (LAST,)]),
    lambda: all_of(compiled(double), [(IMAGES.contiguous(),), (LAST.contiguous(),)]),
)
PLANES_OF_VOLUMES = torch.arange(96.0).reshape(2, 3, 2, 4, 2)
VOLUMES = PLANES_OF_VOLUMES.to(memory_format=torch.channels_last_3d)
case(
    "channels_last in the first call only",
    ("CD106", "channels_last"),
    lambda: all_of(compiled(double), [(LAST,), (IMAGES,)]),
    lambda: all_of(
        compiled(double), [(x.to(memory_format=torch.channels_last),) for x in (LAST, IMAGES)]
    ),
)
case(
    "channels_last of volumes in the first call only",
    ("CD106", "channels_last_3d"),
    lambda: all_of(compiled(double), [(VOLUMES,), (PLANES_OF_VOLUMES,)]),
    lambda: all_of(
        compiled(double),
        [(x.to(memory_format=torch.channels_last_3d),) for x in (VOLUMES, PLANES_OF_VOLUMES)],
    ),
)
case(
    "another device",
    ("CD106", "device"),
    lambda: all_of(compiled(double), [(X,), (OTHER.to("meta"),)])[:1],
    lambda: all_of(compiled(double), [(X,), (OTHER.to("cpu"),)])[:1],
)
case(
    "another rank",
    ("CD106", "rank"),
    lambda: [result.view(4) for result in all_of(compiled(double), [(X,), (OTHER[None],)])],
    lambda: all_of(compiled(double), [(X,), (OTHER[None].view(4),)]),
)


def requiring() -> Any:
    return X.clone().requires_grad_()


case(
    "requires_grad",
    ("CD106", "requires_grad"),
    lambda: all_of(compiled(double), [(X,), (requiring(),), (X,)]),
    lambda: once_all(compiled(double), [(X,), (requiring(),), (X,)]),
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
    ("CD106", "requires_grad"),
    lambda: stacked(requires=False),
    None,
    lambda: stacked(requires=True),
)


def inferred(*, cloned: bool) -> Any:
    with torch.inference_mode():
        made = X * 2
    made = made.clone() if cloned else made
    return all_of(compiled(double), [(X,), (made,)])


case(
    "a tensor of inference mode",
    ("CD106", "inference"),
    lambda: inferred(cloned=False),
    lambda: inferred(cloned=True),
    None,
)


def sampled(*, inside: bool) -> Any:
    """Each call gets what the one before it returned."""
    call, x = compiled(double), X
    with torch.inference_mode():
        x = X.clone() if inside else X
        for _ in range(3):
            x = call(x)
    return x


case(
    "a loop in inference mode that starts with a tensor from outside",
    ("CD106", "inference"),
    lambda: sampled(inside=False),
    None,
    lambda: sampled(inside=True),
)


def inferred_first(*, cloned: bool = False, mode: Any = torch.inference_mode) -> Any:
    """What is made in the block is an inference tensor; what comes from outside it is not."""
    call = compiled(double)
    with mode():
        made = call(X * 2)
        return [made, call(X.clone() if cloned else X)]


case(
    "a tensor from outside inference mode",
    ("CD106", "normal"),
    inferred_first,
    lambda: inferred_first(cloned=True),
    lambda: inferred_first(mode=torch.no_grad),
)


def frozen(*, early: bool, warm: bool = False) -> Any:
    block = Block()
    call, results = compiled(block), []
    for times in range(2 if warm else 1):
        if times:
            warmed()
        results = []
        for grad in (False, False) if early else (True, False):
            block.requires_grad_(grad)
            results.append(call(X).detach())
    return results


case(
    "a parameter that is frozen",
    ("CD106", "frozen"),
    lambda: frozen(early=False),
    lambda: frozen(early=False, warm=True),
    lambda: frozen(early=True),
)


def cast(*, early: bool) -> Any:
    block = Block()
    if early:
        block.double()
    call = compiled(block)
    if not early:
        call(X.double())
    block.double()
    return [call(X.double()), call(X.double())]


case(
    "a parameter that is cast",
    ("CD106", "parameter"),
    lambda: cast(early=False),
    lambda: cast(early=True),
)
case(
    "a conjugated tensor",
    ("CD106", "conjugate"),
    lambda: all_of(compiled(double), [(X + 1j,), ((OTHER + 1j).conj(),)]),
    lambda: all_of(compiled(double), [(X + 1j,), ((OTHER + 1j).conj().resolve_conj(),)]),
)


class Decayed(nn.Module):
    """Reads the gradient of its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: Any) -> Any:
        y = x * self.weight
        return y if self.weight.grad is None else y - self.weight.grad * 0.5


def with_gradients(*, zeroed: bool) -> Any:
    module = Decayed()
    if zeroed:
        module.weight.grad = torch.zeros(4)
    call, results = compiled(module), []
    for _ in range(3):
        y = call(X)
        results.append(y.detach())
        y.sum().backward()
        module.zero_grad(set_to_none=not zeroed)
        module.weight.grad = torch.zeros(4)
    return results


case(
    "a gradient that is missing",
    ("CD106", "grad"),
    lambda: with_gradients(zeroed=False),
    lambda: with_gradients(zeroed=True),
)
case(
    "a parameter instead of a tensor",
    ("CD106", "type"),
    lambda: all_of(compiled(double), [(requiring(),), (nn.Parameter(OTHER),)]),
    lambda: all_of(compiled(double), [(requiring(),), (OTHER.clone().requires_grad_(),)]),
)


def add_to(x: Any, y: Any) -> Any:
    return x * 2 + y


case(
    "one tensor twice",
    ("CD113", None),
    lambda: all_of(compiled(add_to), [(X, OTHER), (X, X)]),
    lambda: all_of(compiled(add_to), [(X, OTHER), (X, X.clone())]),
)


def seven_apart(x: Any) -> Any:
    return x + 1 if len(x) == 7 else x * 2


def sevens_outside(arguments: Sequence[Any]) -> list[Any]:
    seven, others = compiled(added), compiled(double, dynamic=True)
    return [(seven if len(x) == 7 else others)(x) for (x,) in arguments]


case(
    "a size that is told apart",
    ("CD118", "constant"),
    lambda: dynamic(seven_apart, (4,), (7,), (5,)),
    lambda: once_all(compiled(seven_apart, dynamic=True), ones((4,), (7,), (5,)), ones((4,), (7,))),
    lambda: sevens_outside(ones((4,), (7,), (5,))),
    told=APART,
)


def equal_outside(arguments: Sequence[Any]) -> list[Any]:
    same = compiled(lambda x, y: x + y, dynamic=True)
    others = compiled(lambda x, y: x * 2, dynamic=True)
    return [(same if len(x) == len(y) else others)(x, y) for x, y in arguments]


def equal_sizes_after_others() -> list[Any]:
    with torch.fx.experimental._config.patch(use_duck_shape=False):
        return all_of(compiled(equal_or_not, dynamic=True), shapes_of((4, 7), (5, 5)))


case(
    "sizes that are told apart",
    ("CD118", "unequal"),
    equal_sizes_after_others,
    lambda: equal_sizes((4, 7), (5, 5), first=((4, 7), (6, 6))),
    lambda: equal_outside(shapes_of((4, 7), (5, 5))),
    told=APART,
)
