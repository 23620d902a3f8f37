"""Advice beside that for recompiles and graph breaks: programs, and the ways of their sentences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo import compiled_autograd, utils
from torch.utils._python_dispatch import TorchDispatchMode

import compilediag
from advice.case import Program, X, compiled, rows, warmed
from compilediag import FixedShape


def calm() -> bool:
    """torch compiled nothing since `warmed()`, or since the program began."""
    return not utils.get_compilation_metrics()


def no_recompile() -> bool:
    """torch compiled nothing again."""
    return not any(row.recompile_reason for row in utils.get_compilation_metrics())


def has_graph() -> bool:
    """torch has compiled an operation."""
    return utils.counters["stats"]["unique_graphs"] > 0


@dataclass(frozen=True)
class Advice:
    """Each of the ways alone must remove the finding, and what torch shows of it."""

    name: str
    code: str
    told: str
    """A part of the sentence."""
    before: Program
    ways: tuple[Program, ...]
    mended: Callable[[], bool] | None
    """By torch's own count: false after `before` and true after each way; None where the result
    alone shows it."""
    right: Program | None = None
    """What an uncompiled program computes, where `before` computes something else."""


ADVICE: list[Advice] = []


def advised(
    name: str,
    code: str,
    told: str,
    before: Program,
    *ways: Program,
    mended: Callable[[], bool] | None = None,
    right: Program | None = None,
) -> None:
    """Registers a program. What it returns may be a call, which is made when nothing watches."""
    ADVICE.append(Advice(name, code, told, before, ways, mended, right))


# --- CD119: what no guard sees --------------------------------------------------------------------


def zeroed(*_: Any) -> Any:
    return torch.zeros(2, 2)


def layer() -> nn.Linear:
    made = nn.Linear(2, 2)
    nn.init.ones_(made.weight)
    nn.init.ones_(made.bias)
    return made


def hooked(*, first: bool, reset: bool = False) -> Any:
    model = nn.Sequential(layer())
    call = compiled(model)
    if first:
        model[0].register_forward_hook(zeroed)
    call(torch.ones(2, 2))
    if not first:
        model[0].register_forward_hook(zeroed)
    if reset:
        torch._dynamo.reset()
    return [call(torch.ones(2, 2)).detach() for _ in range(2)]


advised(
    "a hook that is registered late",
    "CD119",
    "register it before the first compiled call, or call torch._dynamo.reset() after it",
    lambda: hooked(first=False),
    lambda: hooked(first=True),
    lambda: hooked(first=False, reset=True),
    right=lambda: [zeroed(), zeroed()],
)


def method_replaced(*, first: bool, reset: bool = False) -> Any:
    class Shifted(nn.Module):
        def forward(self, x: Any) -> Any:
            return self.shift(x)

        def shift(self, x: Any) -> Any:
            return x + 1

    def by_two(_: Any, x: Any) -> Any:
        return x + 2

    call = compiled(Shifted())
    if first:
        Shifted.shift = by_two
    call(X)
    Shifted.shift = by_two
    if reset:
        torch._dynamo.reset()
    return [call(X) for _ in range(2)]


advised(
    "a method that is replaced late",
    "CD119",
    "replace it before the first compiled call, or call torch._dynamo.reset() after it",
    lambda: method_replaced(first=False),
    lambda: method_replaced(first=True),
    lambda: method_replaced(first=False, reset=True),
    right=lambda: [X + 2, X + 2],
)

# --- CD104: one act ------------------------------------------------------------------------


class Adapted(nn.Module):
    """A choice that sets two guarded values."""

    def __init__(self) -> None:
        super().__init__()
        self.choose("low")

    def choose(self, name: str) -> None:
        self.active, self.extra = name, name == "high"

    def forward(self, x: Any) -> Any:
        y = x * 2 if self.active == "low" else x * 3
        return y + 1 if self.extra else y


def chosen(*, first: bool) -> Any:
    model = Adapted()
    call = compiled(model)
    if first:
        model.choose("high")
    call(X)
    model.choose("high")
    return call(X)


advised(
    "one line that changes several values",
    "CD104",
    "before the first compiled call, or warm up each state that it leaves",
    lambda: chosen(first=False),
    lambda: chosen(first=True),
    mended=no_recompile,
)


# --- CD150 to CD153 -------------------------------------------------------------------------------


class Cached(nn.Module):
    """Its first call fills what it guards."""

    def __init__(self, *, filled: bool) -> None:
        super().__init__()
        self.cached = torch.ones(4) if filled else None

    def forward(self, x: Any) -> Any:
        if self.cached is None:
            self.cached = torch.ones(4)
        return x + self.cached


def cached(*, filled: bool) -> Callable[[], Any]:
    call = compiled(Cached(filled=filled))
    call(X)
    return lambda: call(X)


class Stepped(nn.Module):
    """Counts its calls."""

    def __init__(self, start: Any) -> None:
        super().__init__()
        self.calls = start

    def forward(self, x: Any) -> Any:
        return x * self.calls


def counted(start: Any) -> Callable[[], Any]:
    model = Stepped(start)
    call = compiled(model)
    call(X)
    model.calls += 1.0
    return lambda: call(X)


advised(
    "a number that is written after the call",
    "CD150",
    "remove the cause (CD104, module-attribute) before it fires",
    lambda: counted(1.0),
    lambda: counted(torch.tensor(1.0)),
    mended=calm,
)


def named(x: Any, name: str) -> Any:
    return x * len(name)


def by_names(*names: str) -> Any:
    call = compiled(named)
    return [call(X, name) for name in names]


def by_lengths(*names: str) -> Any:
    call = compiled(torch.mul)
    return [call(X, torch.tensor(len(name))) for name in names]


FEW, MANY = tuple("a" * n for n in range(1, 8)), tuple("a" * n for n in range(1, 11))
advised(
    "a function near its limit",
    "CD151",
    "remove the causes of its recompiles",
    lambda: by_names(*FEW),
    lambda: by_lengths(*FEW),
    mended=no_recompile,
)
advised(
    "a function over its limit",
    "CD152",
    "remove what makes it recompile: CD107 python-scalar",
    lambda: by_names(*MANY),
    lambda: by_lengths(*MANY),
    mended=no_recompile,
)


def backward(terms: Callable[[int, nn.Linear], Any], size: Callable[[int], int]) -> Any:
    """Six steps under compiled autograd, of which two are the warm-up."""
    model, compiler = layer(), torch.compile(backend="eager")
    call = compiled(lambda x: model(x).square().mean())
    for step in range(6):
        if step == 2:
            warmed()
        loss = call(torch.ones(size(step), 2)) + terms(step, model)
        with compiled_autograd._enable(compiler):
            loss.backward()
    return model.weight.grad


def late_terms(step: int, model: nn.Linear) -> Any:
    loss = torch.zeros(())
    if step >= 2:
        loss = loss + model.weight.sigmoid().sum()
    if step >= 4:
        loss = loss + model.bias.tanh().sum()
    return loss


def all_terms(step: int, model: nn.Linear) -> Any:
    first, second = torch.tensor(float(step >= 2)), torch.tensor(float(step >= 4))
    return first * model.weight.sigmoid().sum() + second * model.bias.tanh().sum()


AUTOGRAD = "warm up two whole steps; keep shapes and the set of autograd nodes constant"
advised(
    "terms that are added to a loss",
    "CD153",
    AUTOGRAD,
    lambda: backward(late_terms, lambda _: 4),
    lambda: backward(all_terms, lambda _: 4),
    mended=calm,
)
advised(
    "batches that grow",
    "CD153",
    AUTOGRAD,
    lambda: backward(all_terms, lambda step: 4 + step // 2),
    lambda: backward(all_terms, lambda _: 6),
    mended=calm,
)

# --- CD301 to CD304 -------------------------------------------------------------------------------

VALUES = torch.arange(100.0)


def trained(work: Callable[[Any], Any]) -> Any:
    """Twelve steps, with what each does besides."""
    weight = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    call = compiled(lambda x: x * weight)
    found = None
    for _ in range(12):
        call(X).sum().backward()
        found = work(weight)
        optimizer.step()
        optimizer.zero_grad()
    return found


def read_one_by_one(_: Any = None) -> float:
    total = 0.0
    for value in VALUES:
        total += value.item()
    return total


def read_at_once(_: Any = None) -> float:
    total = 0.0
    for value in VALUES.tolist():
        total += value
    return total


advised(
    "values that are read one by one",
    "CD301",
    "read all values at once before the loop (`.tolist()`, `.cpu()`), or stay in tensor operations",
    lambda: trained(read_one_by_one),
    lambda: trained(read_at_once),
    lambda: trained(lambda _: VALUES.sum()).item(),
)

LATE = "call what is compiled there once during warm-up, with the inputs it will get"


def scored(*, warm: bool) -> Any:
    score = compiled(lambda x: x.detach().abs().max())
    left = [score(X)] if warm else []

    def work(_: Any) -> Any:
        left.append(torch.zeros(()))
        if len(left) == (12 if warm else 11):
            return score(X)
        if len(left) == 4:
            warmed()
        return score(X) if warm else X.abs().max()

    return trained(work)


advised(
    "a function that is first called late",
    "CD302",
    LATE,
    lambda: scored(warm=False),
    lambda: scored(warm=True),
    mended=calm,
)


def warmed_with(*, grad: bool) -> Any:
    fixed = FixedShape(compiled(layer()), {"input": 0}, [4])
    with torch.set_grad_enabled(grad):
        fixed.warmup(torch.ones(2, 2))
    warmed()
    return fixed(torch.ones(2, 2)).detach()


advised(
    "a warm-up in another grad mode",
    "CD302",
    "warm it up as it is used: grad mode, training or not, dtype, autocast",
    lambda: warmed_with(grad=False),
    lambda: warmed_with(grad=True),
    mended=calm,
)


def bookkept(*, inside: bool) -> Any:
    call = compiled(lambda x: x * 2)

    def work(_: Any) -> Any:
        with compilediag.span("forward"):
            out = call(X)
            total = read_one_by_one() if inside else 0.0
        if not inside:
            with compilediag.span("targets"):
                total = read_one_by_one()
        return out * total

    return trained(work)


advised(
    "bookkeeping in the model's time",
    "CD303",
    "put the span around the call of the model alone, and the bookkeeping in one of its own",
    lambda: bookkept(inside=True),
    lambda: bookkept(inside=False),
)

# --- CD406 to CD408: fixed sizes ------------------------------------------------------------------


def checked(function: Callable[..., Any], mask: str | None = None) -> Any:
    """The result of real rows at a size that pads them."""
    fixed = FixedShape(function, {"x": 0}, [8], mask=mask)
    batch = few()
    fixed.check(batch)
    return fixed(batch).detach()


def few() -> Any:
    return rows(3)[0] / 8


def attention(x: Any, real: Any = None) -> Any:
    score = x @ x.T
    if real is not None:
        score = score.masked_fill(~real, -torch.inf)
    return score.softmax(-1) @ x


def mean(x: Any, real: Any = None) -> Any:
    if real is None:
        return x.mean(0)
    return torch.where(real[:, None], x, 0.0).sum(0) / real.sum()


def shared(x: Any, real: Any = None) -> Any:
    return x / (x.shape[0] if real is None else real.sum())


class Counting(nn.Module):
    """Adds up what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = torch.nn.Buffer(torch.zeros(()))

    def forward(self, x: Any, real: Any = None) -> Any:
        if self.training:
            self.seen.add_(1.0 * len(x) if real is None else real.sum())
        return x * 2


advised(
    "rows that meet",
    "CD406",
    "mask padding where rows meet",
    lambda: checked(attention),
    lambda: checked(attention, "real"),
    right=lambda: attention(few()),
)
advised(
    "rows that are averaged",
    "CD406",
    "reduce over the real rows only",
    lambda: checked(mean),
    lambda: checked(mean, "real"),
    right=lambda: mean(few()),
)
advised(
    "rows that are counted",
    "CD406",
    "use the number of real rows (mask.sum()) in place of the padded size",
    lambda: checked(shared),
    lambda: checked(shared, "real"),
    right=lambda: shared(few()),
)
advised(
    "a state that padding changes",
    "CD406",
    "freeze for padded calls what is updated (module.eval()), or mask what it adds up",
    lambda: checked(Counting()),
    lambda: checked(Counting().eval()),
    lambda: checked(Counting(), "real"),
)


def padded_to(size: int) -> Any:
    fixed = FixedShape(compiled(lambda x: x * 2), {"x": 0}, [size])
    return [fixed(batch) for batch in rows(*[5, 7] * 10)]


advised(
    "a size that pads too much",
    "CD407",
    "choose sizes from those that occur: buckets=[8]",
    lambda: padded_to(64),
    lambda: padded_to(8),
)


def shrinking(*buckets: int, compaction: bool) -> Any:
    fixed = FixedShape(lambda left: left - 1, {"left": 0}, list(buckets))
    left = torch.tensor([12, *[1] * 31])
    with torch.no_grad():
        return fixed.until_done(left, lambda left: left <= 0, 12, compaction=compaction).state


advised(
    "rows that are done",
    "CD408",
    "let rows that are left move to a smaller size: until_done(..., compaction=True)",
    lambda: shrinking(2, 8, 32, compaction=False),
    lambda: shrinking(2, 8, 32, compaction=True),
)
advised(
    "rows that cannot move",
    "CD408",
    "add smaller sizes to the buckets, for rows that are left to move to",
    lambda: shrinking(32, compaction=True),
    lambda: shrinking(2, 8, 32, compaction=True),
)

# --- CD901, CD904: eager --------------------------------------------------------------------------


def double(x: Any) -> Any:
    return x * 2


def compiled_only() -> Any:
    compiled(double)
    return double(X)


advised(
    "a compiled function that nobody calls",
    "CD901",
    "call what torch.compile returns, not the function or module that it was given",
    compiled_only,
    lambda: compiled(double)(X),
    mended=has_graph,
)
advised(
    "nothing to compile",
    "CD901",
    "call torch.compile on what should be compiled, and run it at least once",
    lambda: double(X),
    lambda: compiled(double)(X),
    mended=has_graph,
)


def in_place() -> Any:
    model = nn.Sequential(layer())
    model.compile(backend="eager")
    return model(torch.ones(2, 2)).detach()


advised(
    "a module of torch.nn that is compiled in place",
    "CD901",
    "call what `torch.compile(module)` returns instead of `module.compile()`",
    in_place,
    lambda: compiled(nn.Sequential(layer()))(torch.ones(2, 2)).detach(),
    mended=has_graph,
)


def behind_break(x: Any) -> Any:
    torch._dynamo.graph_break()
    return outside(x)


@torch.compiler.disable
def outside(x: Any) -> Any:
    return x * 2


advised(
    "operations behind a break",
    "CD901",
    "remove the graph breaks: all that they leave runs eager",
    lambda: compiled(behind_break)(X),
    lambda: compiled(double)(X),
    mended=has_graph,
)


class Passing(TorchDispatchMode):
    """Changes nothing."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def in_mode() -> Any:
    with Passing():
        return compiled(double)(X)


def before_mode() -> Any:
    with Passing():
        pass
    return compiled(double)(X)


advised(
    "a dispatch mode",
    "CD904",
    "remove what torch names as the reason",
    in_mode,
    before_mode,
    mended=has_graph,
)
advised(
    "a frame that was given up",
    "CD901",
    "see why torch.compile gave those frames up: no call of them is compiled",
    in_mode,
    before_mode,
    mended=has_graph,
)


def under(stance: str, *, until_end: bool) -> Any:
    with torch.compiler.set_stance(stance):
        eager = double(X) if not until_end else compiled(double)(X)
    return eager if until_end else compiled(double)(X)


advised(
    "a stance that runs eager",
    "CD904",
    'set the stance back to "default" before the calls that are to run compiled',
    lambda: under("force_eager", until_end=True),
    lambda: under("force_eager", until_end=False),
    mended=has_graph,
)


def met(stance: str, *, warm: bool) -> Any:
    call = compiled(double)
    call(X)
    if warm:
        call(X[None])
    with torch.compiler.set_stance(stance):
        return call(X[None])


def raised_and_warmed() -> Any:
    with pytest.raises(RuntimeError, match="rank"):
        met("fail_on_recompile", warm=False)
    torch._dynamo.reset()
    return met("fail_on_recompile", warm=True)


advised(
    "a stance that runs what recompiles eager",
    "CD904",
    'set "fail_on_recompile" instead: it raises at the first of those calls and names its guard; '
    "warm up that case before the stance is set",
    lambda: met("eager_on_recompile", warm=False),
    raised_and_warmed,
)
