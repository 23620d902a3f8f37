"""Small programs in which a tool that watches torch is easily met, each a function.

`PROGRAMS` names them; each returns what it has computed or seen, as JSON has it. They know nothing
of compilediag, but for those that mark steps or spans as a user does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import io
import logging
import logging.config
import multiprocessing
import os
import sys
import threading
import traceback
import unittest
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import compilediag as cd


@dataclasses.dataclass(frozen=True)
class Program:
    """One program, and what is right about it."""

    run: Callable[[], Any]
    steps: int | None = None
    """How many steps it makes; None where nobody could say."""
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """The environment that its user has set."""
    hostile: bool = False
    """It does to logging what no program should: then a run may say that it is blind."""
    exit_code: int = 0
    forked: int = 0
    """How many children it forks, which recompile what was compiled before, once each."""
    uncounted: bool = False
    """torch's own rows do not tell which of its frames were compiled."""


PROGRAMS: dict[str, Program] = {}

ON_2_7 = torch.__version__.startswith("2.7.")


def program(
    steps: int | None = None,
    *,
    hostile: bool = False,
    exit_code: int = 0,
    forked: int = 0,
    uncounted: bool = False,
    **variables: str,
) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Makes a function one of the programs."""

    def add(run: Callable[[], Any]) -> Callable[[], Any]:
        PROGRAMS[run.__name__] = Program(
            run, steps, variables, hostile, exit_code, forked, uncounted
        )
        return run

    return add


eager = functools.partial(torch.compile, backend="eager")


def model(width: int = 4) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))


def batch(rows: int = 3, width: int = 4) -> torch.Tensor:
    return torch.arange(rows * width, dtype=torch.float32).reshape(rows, width) / 7


def numbers(*tensors: torch.Tensor) -> list[Any]:
    """What a program has computed."""
    return [tensor.detach().flatten().tolist()[:8] for tensor in tensors]


def trained(net: nn.Module) -> list[Any]:
    return numbers(*net.parameters())


# --- training with eager optimizers ---------------------------------------------------------------


def fit(forward: Any, *optimizers: Any, sizes: tuple[int, ...] = (3, 3, 3, 5, 3)) -> None:
    """The loop of a training, a step for each size."""
    for rows in sizes:
        forward(batch(rows)).square().mean().backward()
        for one in optimizers:
            one.step()
            one.zero_grad()


def train(make: Callable[[Any], Any], sizes: tuple[int, ...] = (3, 3, 3, 5, 3)) -> list[Any]:
    net = model()
    fit(eager(net), make(net.parameters()), sizes=sizes)
    return trained(net)


@program(steps=5)
def sgd() -> Any:
    return train(functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9))


@program(steps=5)
def adam() -> Any:
    return train(functools.partial(torch.optim.Adam, lr=0.1))


@program(steps=24)
def many_steps() -> Any:
    """So many that a run no longer looks at each of them; then a new size, and as many again."""
    return train(functools.partial(torch.optim.SGD, lr=0.01), (3,) * 12 + (5,) + (3,) * 11)


@program(steps=3)
def lbfgs() -> Any:
    net = model()
    forward = eager(net)
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=4)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = forward(batch()).square().mean()
        loss.backward()
        return loss

    losses = [optimizer.step(closure) for _ in range(3)]
    return [numbers(*losses), trained(net)]


@program(steps=4)
def micro_batches() -> Any:
    """Three calls and one optimizer step for each step; a scheduler, and clipped gradients."""
    net = model()
    forward, optimizer = eager(net), torch.optim.AdamW(net.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for _ in range(4):
        for part in range(3):
            forward(batch() + part).mean().backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    return trained(net)


@program(steps=5)
def optimizers_in_turn() -> Any:
    """One optimizer for each layer, all stepped in each step, one of them in a hook of backward."""
    net = model()
    forward = eager(net)
    first, last = net[0], net[2]
    optimizers = [torch.optim.SGD(first.parameters(), lr=0.1)]
    optimizers += [torch.optim.Adam([last.weight], lr=0.1)]
    hooked = torch.optim.SGD([last.bias], lr=0.1)

    def stepped(_: torch.Tensor) -> None:
        hooked.step()
        hooked.zero_grad()

    last.bias.register_post_accumulate_grad_hook(stepped)
    fit(forward, *optimizers)
    return trained(net)


# --- compiled updates -----------------------------------------------------------------------------


def compiled_step(make: Callable[[Any], Any]) -> list[Any]:
    net = model()
    optimizer = make(net.parameters())
    step = eager(optimizer.step)
    for rows in (3, 3, 3, 5, 3):
        optimizer.zero_grad()
        net(batch(rows)).square().mean().backward()
        step()
    return trained(net)


@program(steps=5)
def compiled_sgd() -> Any:
    return compiled_step(functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9))


@program(steps=5)
def compiled_adam() -> Any:
    return compiled_step(functools.partial(torch.optim.Adam, lr=0.1, foreach=False))


@program(steps=5)
def compiled_update() -> Any:
    """Forward, backward and step in one compiled function."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    @eager
    def update(x: torch.Tensor) -> torch.Tensor:
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    losses: list[torch.Tensor] = []
    for rows in (3, 3, 3, 5, 3):
        optimizer.zero_grad()
        losses.append(update(batch(rows)))
    return [numbers(*losses), trained(net)]


@program(steps=4)
def compiled_update_with_breaks() -> Any:
    """As above, with zero_grad inside, and breaks before and between them."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    @eager
    def update(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        torch._dynamo.graph_break()
        loss = net(x).square().mean()
        loss.backward()
        print("loss", round(loss.item(), 3))
        optimizer.step()
        return loss * 2

    return [numbers(*[update(batch(rows)) for rows in (3, 3, 5, 3)]), trained(net)]


@program(steps=4)
def compiled_update_with_hooks() -> Any:
    """Hooks of the program on its module, its optimizer, its parameters and a result."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    called: list[str] = []
    net[0].register_forward_hook(lambda *_: called.append("forward"))
    net[0].register_full_backward_hook(lambda *_: called.append("backward"))
    optimizer.register_step_pre_hook(lambda *_: called.append("before"))
    optimizer.register_step_post_hook(lambda *_: called.append("after"))
    net[2].weight.register_post_accumulate_grad_hook(lambda _: called.append("gradient"))

    @eager
    def update(x: torch.Tensor) -> None:
        hidden = net(x)
        hidden.register_hook(lambda grad: grad * 2)
        hidden.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(4):
        update(batch())
    return [called, trained(net)]


# 2.7 has one row for a frame with a break in a loop and for one without an operation.
@program(steps=4, uncounted=ON_2_7)
def compiled_update_of_two_optimizers() -> Any:
    net = model()
    optimizers = [
        torch.optim.SGD(net[0].parameters(), lr=0.1),
        torch.optim.Adam(net[2].parameters(), lr=0.1),
    ]

    @eager
    def update(x: torch.Tensor) -> None:
        net(x).square().mean().backward()
        for one in optimizers:
            one.step()
            one.zero_grad()

    for _ in range(4):
        update(batch())
    return trained(net)


@program(steps=4)
def compiled_step_after_micro_batches() -> Any:
    """Gradient accumulation over a compiled model, and the step of the optimizer compiled."""
    net = model()
    forward, optimizer = eager(net), torch.optim.Adam(net.parameters(), lr=0.1, foreach=False)
    step = eager(optimizer.step)
    for rows in (3, 3, 5, 3):
        for _ in range(3):
            forward(batch(rows)).square().mean().backward()
        step()
        optimizer.zero_grad()
    return trained(net)


@program(steps=5)
def compiled_step_after_eager_ones() -> Any:
    """The first steps make the optimizer's state eagerly."""
    net = model()
    forward, optimizer = eager(net), torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for step in [optimizer.step] * 2 + [eager(optimizer.step)] * 3:
        forward(batch()).square().mean().backward()
        step()
        optimizer.zero_grad()
    return trained(net)


@program(steps=3)
def compiled_update_beside_a_policy() -> Any:
    """Reinforcement learning: one compiled function acts, another learns now and then."""
    net = model()
    acting = model()
    act, optimizer = eager(acting), torch.optim.Adam(net.parameters(), lr=0.1, foreach=False)

    @eager
    def update(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    actions: list[torch.Tensor] = []
    for turn in range(20):
        with torch.no_grad():
            actions.append(act(batch(1 + turn // 12)))
        if turn % 5 == 4 and turn > 5:
            actions.append(update(batch()))
    return [numbers(*actions), trained(net)]


@program(steps=4)
def compiled_updates_and_evaluations() -> Any:
    """Training, then an evaluation by another compiled callable, then training again."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    evaluate = eager(net)

    @eager
    def update(x: torch.Tensor) -> torch.Tensor:
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    losses: list[torch.Tensor] = []
    for _ in range(2):
        losses += [update(batch()) for _ in range(2)]
        with torch.no_grad():
            losses += [evaluate(batch(rows)) for rows in (3, 5, 3, 5)]
    return [numbers(*losses), trained(net)]


@program(steps=5)
def compiled_with_backends_of_aot() -> Any:
    """Forward and backward are graphs of their own, and the second one is compiled when it runs."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    fit(torch.compile(net, backend="aot_eager"), optimizer)
    return trained(net)


# --- optimizers that call compiled kernels --------------------------------------------------------


def orthogonal(update: torch.Tensor) -> torch.Tensor:
    x = update / (update.norm() + 1e-7)
    for _ in range(2):
        x = 1.5 * x - 0.5 * x @ x.T @ x
    return x


class Muon(torch.optim.Optimizer):
    """Calls a compiled kernel for each shape of a parameter; makes its state in the first step."""

    def __init__(self, parameters: Any, kernel: Callable[..., torch.Tensor]) -> None:
        super().__init__(parameters, {"lr": 0.1})
        self.kernel = kernel

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for one in group["params"]:
                state = self.state[one]
                if not state:
                    state["momentum"] = torch.zeros_like(one)
                state["momentum"].lerp_(one.grad, 0.5)
                one.sub_(self.kernel(state["momentum"]), alpha=group["lr"])


class ReadyMuon(Muon):
    """As above, with state that is made with the optimizer."""

    def __init__(self, parameters: Any, kernel: Callable[..., torch.Tensor]) -> None:
        super().__init__(parameters, kernel)
        for group in self.param_groups:
            for one in group["params"]:
                self.state[one]["momentum"] = torch.zeros_like(one)


class Several:
    """What people put around several optimizers; torch does not know it."""

    def __init__(self, *optimizers: Any) -> None:
        self.optimizers = optimizers

    def step(self) -> None:
        for one in self.optimizers:
            one.step()

    def zero_grad(self) -> None:
        for one in self.optimizers:
            one.zero_grad()


class OwnOptimizer:
    """Calls compiled kernels, and is none of torch's."""

    def __init__(self, parameters: Any, kernel: Callable[..., torch.Tensor]) -> None:
        self.parameters, self.kernel = list(parameters), kernel

    @torch.no_grad()
    def step(self) -> None:
        for one in self.parameters:
            one.sub_(self.kernel(one.grad), alpha=0.1)

    def zero_grad(self) -> None:
        for one in self.parameters:
            one.grad = None


def layers() -> nn.Module:
    """Parameters of three shapes."""
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(a, b, bias=False) for a, b in ((4, 6), (6, 3), (3, 2))))


def muon(make: Callable[[nn.Module], Any], forward: Any = None) -> list[Any]:
    net = layers()
    fit(forward(net) if forward else net, make(net))
    return trained(net)


@program(steps=5)
def muon_state_in_first_step() -> Any:
    return muon(lambda net: Muon(net.parameters(), eager(orthogonal)))


@program(steps=5)
def muon_state_in_init() -> Any:
    return muon(lambda net: ReadyMuon(net.parameters(), eager(orthogonal)), eager)


@program(steps=5)
def muon_kernel_for_each_shape() -> Any:
    return muon(lambda net: Muon(net.parameters(), eager(orthogonal, dynamic=False)), eager)


@program(steps=5)
def muon_in_a_wrapper() -> Any:
    def make(net: Any) -> Several:
        kernel = eager(orthogonal, dynamic=False)
        rest = torch.optim.AdamW(net[2].parameters(), lr=0.1)
        return Several(Muon([net[0].weight], kernel), ReadyMuon([net[1].weight], kernel), rest)

    return muon(make)


@program(steps=5)
def muon_beside_adam() -> Any:
    """A right program: the model is compiled, and two optimizers are stepped by the loop."""
    net = layers()
    first = Muon([net[0].weight, net[1].weight], eager(orthogonal, dynamic=False))
    fit(eager(net), first, torch.optim.Adam(net[2].parameters(), lr=0.1))
    return trained(net)


@program(steps=5)
def kernels_in_a_class_of_its_own() -> Any:
    """The model is compiled; what steps it is unknown to torch, and calls a kernel per shape."""
    return muon(lambda net: OwnOptimizer(net.parameters(), eager(orthogonal)), eager)


# --- what steps, spans and batches are found by, in compiled code ---------------------------------


def repeated(*functions: Callable[..., Any], **options: Any) -> list[Any]:
    """Each compiled: two calls with one size, one with another."""
    results: list[Any] = []
    for function in functions:
        call = eager(function, **options)
        results += [call(batch(rows).requires_grad_()) for rows in (2, 2, 3)]
    return numbers(*results)


@program()
def compiled_step_with_a_schedule() -> Any:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    schedule, update = torch.optim.lr_scheduler.StepLR(optimizer, 1), eager(optimizer.step)
    for _ in range(4):
        net(batch()).sum().backward()
        update()
        schedule.step()
        optimizer.zero_grad()
    return trained(net)


@program()
def step_of_ones_own_in_a_compiled_function() -> Any:
    net = layers()
    optimizer = Muon(net.parameters(), eager(orthogonal))

    def train(x: torch.Tensor) -> torch.Tensor:
        loss = net(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    return [repeated(train), trained(net)]


@program()
def everything_below_a_frame_that_is_skipped() -> Any:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    handle, step = cd.span("a"), cd.step
    # What they import would be offered to Dynamo where it is imported below the frame.
    torch.save(list(torch.utils.data.DataLoader(batch())), io.BytesIO())  # type: ignore[arg-type]

    def train(x: torch.Tensor) -> torch.Tensor:
        try:
            torch._dynamo.graph_break()  # in a try block: the whole frame runs as it is
            with handle, cd.span("b"), torch.profiler.record_function("c"):
                net(x).sum().backward()
            optimizer.step()
            torch.save(x, io.BytesIO())
            for one in torch.utils.data.DataLoader(x.detach()):  # type: ignore[arg-type]
                net(one)
            step()
        finally:
            torch._dynamo.graph_break()
        return x

    return [repeated(train), trained(net)]


record = torch.autograd.profiler.record_function


class OwnRecord(record):
    def __enter__(self) -> Any:
        return super().__enter__()


@program()
def records_of_all_kinds() -> Any:
    """Around a function and below it, by a class of its own, made outside, by hand, in a stack."""
    plain, own, by_hand, stacked = (record(name) for name in ("plain", "own", "hand", "stacked"))

    @record("above a function")
    def above(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def nested(x: torch.Tensor) -> torch.Tensor:
        with record("Optimizer.step#Mine.step"), OwnRecord("enumerate(DataLoader)#Mine"):
            y = above(x)
            torch._dynamo.graph_break()
            return y * 2

    def made_outside(x: torch.Tensor) -> torch.Tensor:
        with plain, own:
            return x + 1

    def entered(x: torch.Tensor) -> torch.Tensor:
        enter = by_hand.__enter__
        torch._dynamo.graph_break()
        enter()
        y = x + 1
        by_hand.__exit__(None, None, None)
        return y

    def in_a_stack(x: torch.Tensor) -> torch.Tensor:
        with contextlib.ExitStack() as stack:
            stack.enter_context(stacked)
            torch._dynamo.graph_break()
            return x + 1

    return repeated(nested, made_outside, entered, in_a_stack)


@program()
def records_in_the_graph() -> Any:
    name = "capture_profiler_record_function"
    with torch._dynamo.config.patch({} if ON_2_7 else {name: True}):
        return compiled_step(torch.optim.Adam)


@program()
def batches_in_compiled_code() -> Any:
    net, loader = model(), torch.utils.data.DataLoader(torch.ones(3, 4))  # type: ignore[arg-type]
    iterator = iter(loader)

    def over(x: torch.Tensor) -> torch.Tensor:
        for one in loader:
            x = x + net(one)
        return x

    nexts = [eager(lambda: next(iterator) + 1), eager(lambda: iterator.__next__() + 1)]
    return [repeated(over), numbers(*(one() for one in nexts))]


@program()
def backwards_in_compiled_code() -> Any:
    """By a loss with a hook, by torch's functions, and by a transform."""
    net = model()

    def of_a_loss(x: torch.Tensor) -> torch.Tensor:
        y = net(x)
        y.register_hook(lambda gradient: gradient * 2)
        y.sum().backward()
        return y

    def of_torch(x: torch.Tensor) -> torch.Tensor:
        torch.autograd.backward(net(x).sum())
        return x

    def gradient(x: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad((x * x).sum(), x)[0] + 1

    def functional(x: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(lambda y: (y * y).sum())(x)

    return [repeated(of_a_loss, of_torch, gradient, functional), trained(net)]


@program()
def spans_in_compiled_code() -> Any:
    """Around a function, in the graph, by hand, in a stack, and made outside."""
    handle = cd.span("by hand")

    @cd.span("above a function")
    def above(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def inside(x: torch.Tensor) -> torch.Tensor:
        with cd.span("inside"):
            y = above(x)
        cd.step()
        return y * 2

    def entered(x: torch.Tensor) -> torch.Tensor:
        handle.__enter__()
        y = x + 1
        torch._dynamo.graph_break()
        handle.__exit__(None, None, None)
        return y * 2

    def stacked(x: torch.Tensor) -> torch.Tensor:
        with contextlib.ExitStack() as stack:
            stack.enter_context(cd.span("stacked"))
            torch._dynamo.graph_break()
            return x * 2

    def held(x: torch.Tensor) -> torch.Tensor:
        with handle:
            return x * 2

    return [repeated(inside, fullgraph=True), repeated(entered, stacked, held)]


# --- checkpoints, autograd, nesting ---------------------------------------------------------------


def checkpointed(reentrant: bool) -> list[Any]:
    net = nn.ModuleList(model() for _ in range(2))
    compiled = [eager(one) for one in net]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for rows in (3, 3, 5, 3):
        x = batch(rows).requires_grad_()
        for one in compiled:
            x = x + checkpoint(one, x, use_reentrant=reentrant)
        x.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return trained(net)


@program(steps=4)
def checkpoint_of_compiled() -> Any:
    return checkpointed(reentrant=False)


@program(steps=4)
def reentrant_checkpoint_of_compiled() -> Any:
    return checkpointed(reentrant=True)


@program(steps=4)
def checkpoint_without_optimizer() -> Any:
    """Gradients alone: calls mark the steps, and recomputations are none."""
    net = model()
    compiled = eager(net)
    for _ in range(4):
        x = batch().requires_grad_()
        checkpoint(compiled, x, use_reentrant=False).square().mean().backward()
    return numbers(*(one.grad for one in net.parameters()))


@program(steps=4)
def checkpoint_inside_compiled() -> Any:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    @functools.partial(torch.compile, backend="aot_eager")
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x + checkpoint(net, x, use_reentrant=False)

    fit(forward, optimizer, sizes=(3, 3, 5, 3))
    return trained(net)


@program(steps=4)
def own_autograd_function() -> Any:
    """Its forward and its backward call compiled code; a second one is traced."""
    double = eager(lambda x: x * 2)

    class Outside(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return double(x)

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return double(grad)

    class Inside(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            return grad * x.exp()

    traced = torch.compile(lambda x: Inside.apply(x) + 1, backend="aot_eager")
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(4):
        Outside.apply(traced(net(batch()))).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return trained(net)


@program(steps=4)
def compiled_call_in_a_hook_of_backward() -> Any:
    net = model()
    clipped = eager(lambda grad: grad.clamp(-0.1, 0.1))
    for one in net.parameters():
        one.register_hook(clipped)
    fit(eager(net), torch.optim.SGD(net.parameters(), lr=0.1), sizes=(3,) * 4)
    return trained(net)


@program(steps=6)
def nested_calls() -> Any:
    """A compiled function that calls another one, in code that is traced and behind a break."""
    inner = eager(lambda x, n: x * n)

    @eager
    def outer(x: torch.Tensor, n: int) -> torch.Tensor:
        y = inner(x, 2) + 1
        torch._dynamo.graph_break()
        return inner(y, n)

    return numbers(*(outer(batch(), n) for n in (2, 2, 3, 4, 4, 4)))


@program(steps=4)
def compiled_in_disabled() -> Any:
    """Compiled code calls a function that is left out, which calls a compiled one."""
    inner = eager(lambda x: x + 1)

    @torch.compiler.disable
    def outside(x: torch.Tensor) -> torch.Tensor:
        return inner(x) * 2

    @eager
    def outer(x: torch.Tensor) -> torch.Tensor:
        return outside(x.sin()).cos()

    return numbers(*(outer(batch(rows)) for rows in (3, 3, 5, 3)))


# --- threads and processes ------------------------------------------------------------------------


@program()
def threads() -> Any:
    """Two threads that call one compiled function, one after the other, then both at once."""
    double = eager(lambda x, n: x * n)
    double(batch(), 2)
    results: list[list[Any]] = [[], []]

    def work(index: int) -> None:
        results[index] += [numbers(double(batch(), n)) for n in (2, 3 + index, 2)]

    for index in range(2):
        alone = threading.Thread(target=work, args=(index,))
        alone.start()
        alone.join()
    both = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    return results


@program()
def training_in_a_thread() -> Any:
    results: list[Any] = []
    make = functools.partial(torch.optim.SGD, lr=0.1)
    thread = threading.Thread(target=lambda: results.append(train(make)), name="trainer")
    thread.start()
    thread.join()
    return results


def _in_child(double: Any, pipe: Any) -> None:
    seen = [numbers(double(batch(), n)) for n in (2, 5)]
    from torch._dynamo import utils

    pipe.send([seen, dict(utils.counters["frames"]), len(logging.getLogger("torch").handlers)])


@program(forked=1)
def forked_by_multiprocessing() -> Any:
    """A child after the first compile, that calls what is compiled, and compiles."""
    double = eager(lambda x, n: x * n)
    double(batch(), 2)
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_in_child, args=(double, theirs))
    child.start()
    told = ours.recv()
    child.join()
    return [told, child.exitcode, numbers(double(batch(), 3))]


@program(forked=1)
def forked_by_itself() -> Any:
    double = eager(lambda x, n: x * n)
    double(batch(), 2)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            print("in the child", numbers(double(batch(), 5)), flush=True)
            code = 7
        os._exit(code)
    _, status = os.waitpid(child, 0)
    return [os.waitstatus_to_exitcode(status), numbers(double(batch(), 3))]


class Rows(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        return batch(1)[0] + index


@program(steps=6)
def data_loaders() -> Any:
    """A loader in this process, and one with a worker, which is forked."""
    net = model()
    forward, optimizer = eager(net), torch.optim.SGD(net.parameters(), lr=0.1)
    for workers in (0, 1):
        context = {"multiprocessing_context": "fork"} if workers else {}
        for rows in torch.utils.data.DataLoader(
            Rows(), batch_size=2, num_workers=workers, **context
        ):
            forward(rows).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return trained(net)


# --- logging --------------------------------------------------------------------------------------


def recompiles_and_breaks() -> None:
    """What torch logs something about."""
    double = eager(lambda x, n: x * n, dynamic=False)
    for n in range(2):
        double(batch(), n)

    @eager
    def broken(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x + 1

    broken(batch())


class Kept(logging.Handler):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[list[Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append([record.name, record.levelname, record.getMessage()])


@program(TORCH_LOGS="recompiles,graph_breaks")
def torch_logs_of_the_user() -> Any:
    """torch prints what TORCH_LOGS says, and the program's handler gets it."""
    kept = Kept()
    logging.getLogger("torch._dynamo").addHandler(kept)
    recompiles_and_breaks()
    return kept.records


@program(TORCH_LOGS="recompiles")
def torch_logs_of_one_kind() -> Any:
    recompiles_and_breaks()
    return None


@program(TORCH_LOGS="guards,+dynamo")
def torch_logs_of_everything() -> Any:
    """Dynamo's debug messages: their number, for some hold addresses."""
    kept = Kept()
    logging.getLogger("torch._dynamo").addHandler(kept)
    recompiles_and_breaks()
    return sorted(Counter((name, level) for name, level, _ in kept.records).items())


@program()
def logs_set_in_the_middle() -> Any:
    recompiles_and_breaks()
    torch._logging.set_logs(recompiles=True, graph_breaks=True)
    recompiles_and_breaks()
    torch._logging.set_logs()
    recompiles_and_breaks()
    return None


@program()
def handlers_on_loggers_of_torch() -> Any:
    """At every level, before and after the first compile."""
    kept = [Kept() for _ in range(4)]
    names = ("torch", "torch._dynamo", "torch._dynamo.convert_frame", "torch.__trace")
    for name, one in zip(names[:2], kept[:2], strict=True):
        logging.getLogger(name).addHandler(one)
    recompiles_and_breaks()
    for name, one in zip(names[2:], kept[2:], strict=True):
        logging.getLogger(name).addHandler(one)
    logging.getLogger("torch._dynamo").setLevel(logging.DEBUG)
    recompiles_and_breaks()
    return [[len(one.records), one.records[:40]] for one in kept[:3]] + [len(kept[3].records)]


@contextlib.contextmanager
def wrapped(name: str, counted: list[str]) -> Iterator[None]:
    """As helpers of test suites do: every handler's `emit` of a logger counts records."""
    originals = [(one, one.emit) for one in logging.getLogger(name).handlers]

    def counting(emit: Callable[[logging.LogRecord], None]) -> Any:
        def count(record: logging.LogRecord) -> None:
            counted.append(f"{record.name} {record.getMessage()}")
            emit(record)

        return count

    for one, emit in originals:
        one.emit = counting(emit)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for one, emit in originals:
            one.emit = emit  # type: ignore[method-assign]


@program()
def wrapped_handlers() -> Any:
    counted: list[str] = []
    with contextlib.redirect_stderr(io.StringIO()):
        torch._logging.set_logs(recompiles=True, graph_breaks=True)
    with contextlib.ExitStack() as stack:
        for name in ("torch", "torch._dynamo", "torch._dynamo.guards"):
            stack.enter_context(wrapped(name, counted))
        recompiles_and_breaks()
    return counted


@program()
def all_loggers_at_debug() -> Any:
    """The root logger at DEBUG, and a handler that counts by logger."""
    kept = Kept()
    logging.basicConfig(level=logging.DEBUG, handlers=[kept])
    logging.getLogger("mine").debug("a message of the program")
    recompiles_and_breaks()
    return sorted(Counter((name, level) for name, level, _ in kept.records).items())


@program()
def own_record_factory() -> Any:
    made: list[str] = []
    original = logging.getLogRecordFactory()

    def factory(*args: Any, **kwargs: Any) -> logging.LogRecord:
        made.append(args[0])
        return original(*args, **kwargs)

    logging.setLogRecordFactory(factory)
    recompiles_and_breaks()
    return sorted(Counter(made).items())


def configured(disable_existing: bool) -> None:
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": disable_existing,
            "formatters": {"short": {"format": "%(name)s %(levelname)s"}},
            "handlers": {"out": {"class": "logging.StreamHandler", "formatter": "short"}},
            "root": {"level": "INFO", "handlers": ["out"]},
        }
    )


@program(hostile=True)
def loggers_disabled_by_a_configuration() -> Any:
    recompiles_and_breaks()
    configured(disable_existing=True)
    recompiles_and_breaks()
    return None


@program()
def loggers_kept_by_a_configuration() -> Any:
    configured(disable_existing=False)
    recompiles_and_breaks()
    return None


@program(hostile=True)
def logging_disabled() -> Any:
    logging.disable(logging.CRITICAL)
    recompiles_and_breaks()
    return logging.getLogger("torch._dynamo").isEnabledFor(logging.ERROR)


@program(hostile=True)
def logging_shut_down() -> Any:
    recompiles_and_breaks()
    logging.shutdown()
    recompiles_and_breaks()
    return len(logging._handlerList)


@program(hostile=True)
def own_class_of_loggers() -> Any:
    """Set as one should, and put in place of the library's."""
    made: list[str] = []

    class Own(logging.Logger):
        def handle(self, record: logging.LogRecord) -> None:
            made.append(self.name)
            super().handle(record)

    logging.setLoggerClass(Own)
    logging.getLogger("mine").warning("hello")
    recompiles_and_breaks()
    logging.Logger = Own  # type: ignore[misc]
    logging.getLogger("yours").warning("hello")
    recompiles_and_breaks()
    return made


@program(hostile=True)
def handler_that_raises() -> Any:
    """On torch's logger: an error of the program's, in the middle of a compile."""
    raised: list[str] = []

    class Faulty(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raised.append(record.name)
            raise RuntimeError("no room")

    torch._logging.set_logs(recompiles=True, graph_breaks=True)
    logging.getLogger("torch._dynamo").addHandler(Faulty())
    outcomes: list[str] = []
    for _ in range(2):
        try:
            recompiles_and_breaks()
            outcomes.append("none")
        except RuntimeError as error:
            outcomes.append(str(error))
    return [raised, outcomes]


@program()
def loggers_in_a_backend() -> Any:
    """What a compile itself can see of torch's loggers."""
    seen: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        known = logging.root.manager.loggerDict
        seen.append(
            {
                name: [one.level, len(one.handlers), len(one.filters), one.isEnabledFor(10)]
                for name, one in sorted(known.items())
                if name.startswith("torch") and isinstance(one, logging.Logger)
            }
        )
        return graph.forward

    torch.compile(lambda x: x + 1, backend=backend)(batch())
    return seen


class _Asserting(unittest.TestCase):
    """`assertLogs`, which puts its own handler in place of those of a logger."""

    def runTest(self) -> None:
        torch._logging.set_logs(recompiles=True, graph_breaks=True)
        with self.assertLogs("torch._dynamo", level="DEBUG") as logs:
            recompiles_and_breaks()
        print(sorted(Counter(record.name for record in logs.records).items()))
        torch._logging.set_logs()
        with self.assertNoLogs("torch._dynamo", level="INFO"):
            recompiles_and_breaks()


@program()
def asserted_logs() -> Any:
    result = _Asserting().run()
    return [result.testsRun, len(result.failures), len(result.errors)] if result else None


# --- Dynamo ---------------------------------------------------------------------------------------


@program()
def reset_in_the_middle() -> Any:
    recompiles_and_breaks()
    torch._dynamo.reset()
    recompiles_and_breaks()
    torch.compiler.reset()
    return numbers(eager(lambda x: x + 1)(batch()))


@program(steps=6)
def recompile_limit() -> Any:
    torch._dynamo.config.recompile_limit = 2
    double = eager(lambda x, n: x * n, dynamic=False)
    return numbers(*(double(batch(), n) for n in range(2, 8)))


@program(steps=4)
def breaks_of_several_kinds() -> Any:
    @eager
    def broken(x: torch.Tensor, n: int) -> torch.Tensor:
        print("called with", n)
        if x.sum() > 3:
            x = x - 1
        numbers_seen.append(x.max().item())
        return x * n

    numbers_seen: list[float] = []
    return [*numbers(*(broken(batch(), n) for n in (2, 2, 3, 3))), numbers_seen]


@program(steps=4)
def breaks_in_loops() -> Any:
    """In a loop of the frame, which torch then gives up, and in a function that a loop calls."""

    def called(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x + 1

    @eager
    def looping(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = x * 2
            torch._dynamo.graph_break()
        for _ in range(2):
            x = called(x)
        return x

    return numbers(*(looping(batch(rows)) for rows in (3, 3, 5, 3)))


@program()
def frames_that_are_skipped() -> Any:
    """A generator, a frame without tensors, a class that is made, an import, and a file's text."""

    def generated(x: torch.Tensor) -> Iterator[torch.Tensor]:
        yield x + 1
        yield x + 2

    @eager
    def mixed(x: torch.Tensor) -> torch.Tensor:
        import json

        torch._dynamo.graph_break()
        names = [name.upper() for name in ("a", "b")]
        text = json.dumps(names)
        torch._dynamo.graph_break()
        scope: dict[str, Any] = {}
        exec("def f(n):\n    return n + 1", scope)
        return sum(generated(x)) + len(text) + scope["f"](1)

    return numbers(*(mixed(batch(rows)) for rows in (3, 5)))


@program(exit_code=1)
def error_through_a_compiled_call() -> Any:
    """Caught with its traceback at first, then it ends the program."""

    @eager
    def failing(x: torch.Tensor, n: int) -> torch.Tensor:
        y = x + n
        if n > 1:
            raise ValueError(f"no {n}")
        return y

    failing(batch(), 1)
    try:
        failing(batch(), 2)
    except ValueError:
        traceback.print_exc(file=sys.stdout)
    failing(batch(), 3)


@program(exit_code=3)
def exit_in_the_middle() -> Any:
    net = model()
    forward, optimizer = eager(net), torch.optim.SGD(net.parameters(), lr=0.1)
    for number in range(4):
        forward(batch()).mean().backward()
        optimizer.step()
        if number == 2:
            sys.exit(3)


@program()
def fullgraph_failures() -> Any:
    def broken(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x + 1

    outcomes: list[str] = []
    for compiled in (eager(broken, fullgraph=True), eager(broken), eager(broken, fullgraph=True)):
        try:
            outcomes.append(str(numbers(compiled(batch()))))
        except torch._dynamo.exc.Unsupported as error:
            outcomes.append(str(error))
    return outcomes


@program()
def errors_on_recompile() -> Any:
    double = eager(lambda x, n: x * n, dynamic=False)
    double(batch(), 2)
    outcomes: list[str] = []
    with torch._dynamo.config.patch(error_on_recompile=True):
        for n in (2, 3):
            try:
                outcomes.append(str(numbers(double(batch(), n))))
            except Exception as error:
                outcomes.append(f"{type(error).__name__} {error}")
    return outcomes


@program(steps=6)
def modes_of_gradients() -> Any:
    double = eager(lambda x: x * 2)
    x = batch().requires_grad_()
    results = [double(x)]
    with torch.no_grad():
        results.append(double(x))
    with torch.inference_mode():
        results.append(double(batch()) + 0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        results.append(double(x))
    results.append(double(x.double()))
    torch.set_grad_enabled(False)
    results.append(double(x))
    return [numbers(*results), [one.requires_grad for one in results]]


@program(steps=3)
def saved_in_compiled_code() -> Any:
    @eager
    def saving(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        file = io.BytesIO()
        torch.save({"y": y}, file)
        sizes.append(len(file.getvalue()) > 0)
        return y * 2

    sizes: list[bool] = []
    return [numbers(*(saving(batch()) for _ in range(3))), sizes]


@program(steps=3)
def record_function_in_compiled_code() -> Any:
    """In code that is traced, in code behind a break, and scripted."""

    @torch.jit.script
    def scripted(x: torch.Tensor) -> torch.Tensor:
        with torch.profiler.record_function("scripted"):
            return x + 1

    @eager
    def marked(x: torch.Tensor) -> torch.Tensor:
        with torch.profiler.record_function("traced"):
            x = x * 2
        torch._dynamo.graph_break()
        with torch.autograd.profiler.record_function("behind"):
            x = x.sin()
        return scripted(x)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return numbers(*(marked(batch()) for _ in range(3)))


@program(steps=4)
def profiled() -> Any:
    """Every operation that is run, by torch's own profiler."""
    net = model()
    forward, optimizer = eager(net), torch.optim.SGD(net.parameters(), lr=0.1)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        fit(forward, optimizer, sizes=(3, 3, 5, 3))
    return [sorted(Counter(event.name for event in profile.events()).items()), trained(net)]


@program(steps=14)
def reads_in_every_step() -> Any:
    """Synchronisations by every kind of read, in enough steps that some are sampled."""
    net = model()
    forward, optimizer = eager(net), torch.optim.SGD(net.parameters(), lr=0.01)
    total = 0.0
    for step in range(14):
        loss = forward(batch(3 if step < 8 else 5)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.item() + float(loss) + int(loss)
        if loss > 0.1 or bool(loss == 0):
            total += len(f"{loss:.2f}") + loss.tolist()
    return total


@program(steps=6)
def stances() -> Any:
    """force_eager, fail_on_recompile, and back."""
    double = eager(lambda x, n: x * n, dynamic=False)
    results = [double(batch(), 2)]
    with torch.compiler.set_stance("force_eager"):
        results += [double(batch(), 3), double(batch(), 2)]
    with torch.compiler.set_stance("eager_on_recompile"):
        results += [double(batch(), 4), double(batch(), 2)]
    results.append(double(batch(), 4))
    return numbers(*results)


@program(steps=5)
def marked_steps_and_spans() -> Any:
    """A loop that says itself where its steps end, in part of it, and spans beside it."""
    double = eager(lambda x: x * 2)
    results: list[torch.Tensor] = []
    for rows in (3, 3, 5, 3, 3):
        with cd.span("work"):
            results += [double(batch(rows)), double(batch(rows + 1))]
        cd.step()
    return numbers(*results)


@program(steps=4)
def steps_marked_in_compiled_code() -> Any:
    """`cd.step()` and `cd.span()` in code that is traced: they do nothing there."""

    @eager
    def marked(x: torch.Tensor) -> torch.Tensor:
        with cd.span("inside"):
            y = x * 2
        cd.step()
        return y + 1

    return numbers(*(marked(batch(rows)) for rows in (3, 3, 5, 3)))


@program()
def cadence_in_compiled_code() -> Any:
    """`due` answers in code that is traced and behind a break, and is no frame of its own."""
    entropy = cd.cadence("entropy", every=3)

    @eager
    def forward(x: torch.Tensor, step: int) -> torch.Tensor:
        return x.sin() if entropy.due(step) else x.cos()

    @eager
    def broken(x: torch.Tensor, step: int) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x + 1 if entropy.due(step) else x - 1

    return numbers(*(broken(forward(batch(), step), step) for step in range(7)))


@program(steps=4)
def calls_of_many_kinds() -> Any:
    """Arguments by name and in lists, subclasses of tensors and nested ones; several in a step."""

    class Mine(torch.Tensor):
        pass

    def scored(x: torch.Tensor, mask: Any = None, extra: Any = ()) -> torch.Tensor:
        return net(x).sum() + sum(item.sum() for item in extra)

    net = model()
    forward, optimizer = eager(scored), torch.optim.SGD(net.parameters(), lr=0.1)
    results: list[torch.Tensor] = []
    for step in range(4):
        x = batch(2 + step % 3)
        results.append(forward(x, mask=torch.ones(2), extra=[torch.ones(step % 2 + 1)]))
        results[-1].backward()
        optimizer.step()
        with torch.no_grad():
            results.append(forward(x.as_subclass(Mine)))
            results.append(forward(torch.nested.nested_tensor([x]).to_padded_tensor(0.0)))
    return [numbers(*results), trained(net)]


@program(steps=4)
def warnings_of_the_program() -> Any:
    """Recorded in compiled code and around it."""

    @eager
    def warning(x: torch.Tensor) -> torch.Tensor:
        warnings.warn("odd", UserWarning, stacklevel=2)
        return x + 1

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = [warning(batch(rows)) for rows in (3, 3, 5, 3)]
    return [numbers(*results), [[str(one.message), one.filename, one.lineno] for one in caught]]


@program(steps=3)
def stack_of_a_hook() -> Any:
    """Who calls the program's functions, as it sees it itself in a traceback."""
    net = model()
    stacks: list[list[str]] = []

    def look(*_: Any) -> None:
        frames = traceback.extract_stack()
        names = [f"{os.path.basename(one.filename)} {one.name}" for one in frames]
        stacks.append(names[names.index("plain_programs.py stack_of_a_hook") :])

    net.register_forward_hook(look)
    net[2].bias.register_post_accumulate_grad_hook(look)
    forward = torch.compiler.disable(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    optimizer.register_step_post_hook(look)

    @eager
    def loss_of(x: torch.Tensor) -> torch.Tensor:
        return forward(x + 1).square().mean()

    for _ in range(3):
        loss_of(batch()).backward()
        optimizer.step()
    return stacks


@program(steps=3)
def freed_objects() -> Any:
    """What is alive of a model, its optimizer and a result once the program has let them go."""
    net = model()
    forward, optimizer = eager(net), torch.optim.SGD(net.parameters(), lr=0.1)
    loss = torch.zeros(())
    for _ in range(3):
        loss = forward(batch()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    refs = [weakref.ref(one) for one in (net, net[0].weight, optimizer, loss, forward)]
    del net, forward, optimizer, loss
    before = [ref() is None for ref in refs]
    torch._dynamo.reset()
    gc.collect()
    return [before, [ref() is None for ref in refs]]


@program(steps=3)
def callbacks_of_the_user() -> Any:
    """torch tells the program when a compile begins and ends."""
    told: list[str] = []
    callbacks = torch._dynamo.callback.callback_handler
    callbacks.register_start_callback(lambda *_: told.append("begins"))
    callbacks.register_end_callback(lambda *_: told.append("ends"))
    double = eager(lambda x, n: x * n, dynamic=False)
    return [numbers(*(double(batch(), n) for n in (2, 3, 2))), told]


@program()
def exported() -> Any:
    """Exported and explained in the middle of other work, and compiled afterwards."""
    net = model()
    program = torch.export.export(net, (batch(),), strict=False)
    explained = torch._dynamo.explain(net)(batch())
    results = numbers(program.module()(batch()), eager(net)(batch()))
    return [results, explained.graph_count, explained.graph_break_count]


@program(steps=3)
def dynamic_marks_and_modules() -> Any:
    class Own(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sin() + x.shape[0]

    net = Own()
    net.compile(backend="eager", dynamic=True)
    results: list[torch.Tensor] = []
    for rows in (3, 4, 5):
        x = batch(rows)
        torch._dynamo.maybe_mark_dynamic(x, 0)
        results.append(net(x))
    return numbers(*results)


class Opinionated(nn.Module):
    """A module that answers neither `==` nor `bool`: nobody but its caller is to ask."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 1)

    def __eq__(self, other: object) -> Any:
        raise RuntimeError("compared")

    def __hash__(self) -> int:
        return 1

    if not ON_2_7:  # whose Dynamo asks itself

        def __bool__(self) -> bool:
            raise RuntimeError("asked for its truth")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu()


@program(steps=4)
def modules_with_operators_of_their_own() -> Any:
    """As the modules of tensordict have; in arguments, closures and globals of compiled code."""
    torch.manual_seed(0)
    first, second = Opinionated(), Opinionated()

    def both(x: torch.Tensor, given: nn.Module, several: list[nn.Module]) -> torch.Tensor:
        return first(x) + given(x) + several[0](x)

    forward = eager(both, dynamic=False)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
    for rows in (3, 5, 3, 7):
        forward(batch(rows), second, [second, first]).sum().backward()
        optimizer.step()
    return trained(first)
