"""Graph breaks, and the same work in one graph (CD2xx): `whole` raises where it is none."""

from __future__ import annotations

import inspect
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from advice.case import X, breaking, compiled
from advice.values import package

LOCK = threading.Lock()


def whole(function: Any, *arguments: Any) -> Any:
    return compiled(function, fullgraph=True)(*arguments)


def parts(function: Any, *arguments: Any) -> Any:
    return compiled(function)(*arguments)


# --- CD201, CD202: data ---------------------------------------------------------------------------


def branch(x: Any) -> Any:
    if x.sum() > 0:
        x = x * 2
    return x - 1


breaking(
    "a branch on data",
    "CD201",
    lambda: parts(branch, X),
    lambda: whole(lambda x: torch.where(x.sum() > 0, x * 2, x) - 1, X),
    lambda: whole(
        lambda x: torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x.clone(), (x,)) - 1, X
    ),
)
breaking(
    "a number of data",
    "CD202",
    lambda: parts(lambda x: x / x.max().item(), X),
    lambda: whole(lambda x: x / x.max(), X),
)


def read_after() -> Any:
    doubled, largest = whole(lambda x: (x * 2, x.max()), X)
    return doubled, largest.item()


breaking(
    "a number of data that is only read",
    "CD202",
    lambda: parts(lambda x: (x * 2, x.max().item()), X),
    None,
    read_after,
)


# --- CD203, CD204: calls --------------------------------------------------------------------------


def by_thread(x: Any) -> Any:
    return x * (threading.get_ident() % 1 + 2)


breaking(
    "a C function",
    "CD203",
    lambda: parts(by_thread, X),
    lambda: whole(lambda x, count: x * count, X, torch.tensor(threading.get_ident() % 1 + 2)),
)


breaking(
    "a function on Dynamo's list",
    "CD204",
    lambda: parts(lambda x: x * 2 * len(inspect.getsource(read_after)), X),
    lambda: whole(lambda x, length: x * 2 * length, X, len(inspect.getsource(read_after))),
    told="outside the compiled function",
)


@torch.compiler.disable
def disabled(x: Any) -> Any:
    return x + 1


def on_purpose(x: Any) -> Any:
    y = x * 2
    torch._dynamo.graph_break()
    return y


def with_break(x: Any) -> Any:
    return on_purpose(x) + 1


breaking(
    "a break on purpose",
    "explicit",
    lambda: parts(with_break, X),
    lambda: parts(with_break, X),
    lambda: whole(lambda x: x * 2 + 1, X),
    lambda: disabled(whole(lambda x: x * 2, X)),
)

# --- CD205 to CD209 -------------------------------------------------------------------------------


def total(given: Any) -> Any:
    result = torch.zeros(4)
    for part in given:
        result = result + part
    return result


def three() -> Iterator[Any]:
    yield from (X, X, X)


breaking(
    "a generator",
    "CD205",
    lambda: parts(total, three()),
    lambda: whole(total, list(three())),
)


def locked(x: Any) -> Any:
    with LOCK:
        return x + 1


def lock_around() -> Any:
    call = compiled(lambda x: x + 1, fullgraph=True)
    with LOCK:
        return call(X)


breaking("a lock", "CD206", lambda: parts(locked, X), lock_around)


class Protocol:
    """Its attributes are computed."""

    def __init__(self, **values: Any) -> None:
        object.__setattr__(self, "values", values)

    def __getattribute__(self, name: str) -> Any:
        values = object.__getattribute__(self, "values")
        return values[name] if name in values else object.__getattribute__(self, name)


class Plain:
    """Its attributes are plain."""

    def __init__(self, gain: float) -> None:
        self.gain = gain


def scale(x: Any, config: Any) -> Any:
    return x * config.gain


breaking(
    "a protocol of attributes",
    "CD207",
    lambda: parts(scale, X, Protocol(gain=2.0)),
    lambda: whole(scale, X, Plain(2.0)),
)


def double(x: Any) -> Any:
    return x * 2


breaking(
    "a sparse tensor",
    "CD208",
    lambda: parts(double, torch.eye(3).to_sparse()).to_dense(),
    lambda: whole(double, torch.eye(3).to_sparse().to_dense()),
)


def backward_inside() -> Any:
    weight = torch.ones(4, requires_grad=True)

    def step(x: Any) -> Any:
        loss = (x * weight).sum()
        loss.backward()
        return loss.detach()

    return parts(step, X), weight.grad


def backward_outside() -> Any:
    weight = torch.ones(4, requires_grad=True)
    loss = whole(lambda x: (x * weight).sum(), X)
    loss.backward()
    return loss.detach(), weight.grad


breaking("backward inside", "CD209", backward_inside, backward_outside)

# --- CD210 to CD214 -------------------------------------------------------------------------------


@torch.library.custom_op("advice::without_fake", mutates_args=())
def without_fake(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.library.custom_op("advice::with_fake", mutates_args=())
def with_fake(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@with_fake.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def caught(x: Any) -> Any:
    try:
        return compiled(lambda x: without_fake(x + 1))(x)
    except Exception:
        return without_fake(x + 1)


breaking(
    "an operator without a fake implementation",
    "CD210",
    lambda: caught(X),
    None,
    lambda: whole(lambda x: with_fake(x + 1), X),
    told="register a fake implementation for the operator",
)


def into(x: Any) -> Any:
    y = torch.empty(8)[::2]
    torch.sin(x, out=y)
    return y + 1


breaking(
    "an operator that writes into another layout",
    "CD210",
    lambda: parts(into, X),
    lambda: whole(lambda x: torch.sin(x) + 1, X),
)


def printed(x: Any) -> Any:
    y = x * 2
    print(end="")
    return y + 1


def printed_eager(x: Any) -> Any:
    y = x * 2
    if not torch.compiler.is_compiling():
        print(end="")
    return y + 1


def timed_outside() -> Any:
    result = whole(lambda x: x * 2 + 1, X)
    time.perf_counter()
    print(end="")
    return result


breaking(
    "a print",
    "CD211",
    lambda: parts(printed, X),
    timed_outside,
    lambda: whole(printed_eager, X),
)


def drawn(x: Any) -> Any:
    return x * random.choice([1.0, 2.0])


def drawn_by_torch(x: Any) -> Any:
    return x * torch.tensor([1.0, 2.0])[torch.randint(2, (1,))]


breaking(
    "a random choice",
    "CD212",
    lambda: parts(drawn, X),
    lambda: whole(drawn_by_torch, X),
    equal=False,
)


def checked(x: Any) -> Any:
    if len(x) > 2:
        raise ValueError("too long")
    return x * 2


def raised() -> Any:
    try:
        return parts(checked, X)
    except ValueError:
        return X


def checked_before() -> Any:
    call = compiled(double, fullgraph=True)
    call(X[:2])
    try:
        if len(X) > 2:
            raise ValueError("too long")
        return call(X)
    except ValueError:
        return X


breaking("an exception", "CD213", raised, checked_before)


class Remembering(nn.Module):
    """A side effect inside an operator."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = torch.zeros(())

    def body(self, x: Any) -> Any:
        self.seen = x.sum()
        return x.sin()

    def forward(self, x: Any) -> Any:
        return checkpoint(self.body, x, use_reentrant=False)


class Pure(nn.Module):
    """The operator's function returns all that it makes."""

    def body(self, x: Any) -> Any:
        return x.sin()

    def forward(self, x: Any) -> Any:
        return checkpoint(self.body, x, use_reentrant=False)


def requiring() -> Any:
    return torch.ones(3, requires_grad=True)


breaking(
    "a side effect",
    "CD214",
    lambda: parts(Remembering(), requiring()).detach(),
    lambda: whole(Pure(), requiring()).detach(),
)

# --- code of others -------------------------------------------------------------------------------


def counted(x: Any) -> Any:
    return x * 2 + msgspec.json.decode(msgspec.json.encode(x.shape[0]))


@torch.library.custom_op("compilediag_advice::size", mutates_args=())
def size_of(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(float(msgspec.json.decode(msgspec.json.encode(x.shape[0]))))


@size_of.register_fake  # pyright: ignore[reportUnknownMemberType, reportUntypedFunctionDecorator]
def _(_x: torch.Tensor) -> torch.Tensor:
    return torch.empty(())


def given(x: Any, size: Any) -> Any:
    return x * 2 + size


breaking(
    "a C extension",
    "c_extension",
    lambda: parts(counted, X),
    lambda: whole(lambda x: x * 2 + size_of(x), X),
    lambda: whole(given, X, torch.tensor(float(msgspec.json.decode(msgspec.json.encode(len(X)))))),
)

CHECKING = """
def checked(x):
    if x.isnan().any():
        x = x.nan_to_num()
    return x * 3
"""


def checked_inside() -> Any:
    library = package(CHECKING)
    return parts(lambda x: library.checked(x * 2) + 1, X)


def checked_outside() -> Any:
    library = package(CHECKING)
    doubled = whole(lambda x: x * 2, X)
    return whole(lambda x: x + 1, library.checked(doubled))


breaking("a check within a package", "package", checked_inside, checked_outside)
