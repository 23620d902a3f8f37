"""Programs whose compiled code meets what the steps are found by, and what torch made of each:
`python compiled_around_hooks.py MODE`, MODE being what observes them.

Prints, as JSON by program, torch's counters and metrics rows (but times) and what went wrong.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo.utils as dynamo_utils
from torch.utils.checkpoint import checkpoint

from compilediag import span, step

Program = Callable[[], None]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


def compiled(function: Any, **options: Any) -> Any:
    return torch.compile(function, backend="eager", **options)


def linear() -> Any:
    torch.manual_seed(0)
    return torch.nn.Linear(4, 4)


def observe_late() -> None:
    """Replaced by what begins to observe in the middle of a program."""


def repeat(function: Callable[[Any], object]) -> None:
    """Two calls with one size, one with another."""
    for size in (2, 2, 3):
        function(torch.ones(size, 4, requires_grad=True))


def training(update: Callable[[], object], model: Any, optimizer: Any) -> None:
    for _ in range(4):
        model(torch.ones(2, 4)).sum().backward()
        update()
        optimizer.zero_grad()


# --- optimizers ---


@program
def compiled_step() -> None:
    model = linear()
    optimizer = torch.optim.Adam(model.parameters())
    update = compiled(optimizer.step)
    training(update, model, optimizer)
    observe_late()
    training(update, model, optimizer)


@program
def compiled_step_with_a_schedule() -> None:
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule, update = torch.optim.lr_scheduler.StepLR(optimizer, 1), compiled(optimizer.step)
    training(lambda: (update(), schedule.step()), model, optimizer)


@program
def step_in_a_compiled_function() -> None:
    model = linear()
    optimizer = torch.optim.Adam(model.parameters())

    def train(x: Any) -> Any:
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    repeat(compiled(train))


@program
def step_of_ones_own_in_a_compiled_function() -> None:
    kernel = compiled(lambda weight, gradient: weight.add_(gradient, alpha=-0.1))

    class Own(torch.optim.Optimizer):
        @torch.no_grad()
        def step(self) -> None:
            for weight in self.param_groups[0]["params"]:
                state = self.state[weight]
                state["steps"] = state.get("steps", 0) + 1
                kernel(weight, weight.grad)

    model = linear()
    optimizer = Own(model.parameters(), {})

    def train(x: Any) -> Any:
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    repeat(compiled(train))


@program
def everything_below_a_frame_that_is_skipped() -> None:
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = span("a")

    def train(x: Any) -> None:
        try:
            torch._dynamo.graph_break()  # in a try block: the whole frame runs as it is
            with handle, span("b"), torch.profiler.record_function("c"):
                model(x).sum().backward()
            optimizer.step()
            torch.save(x, io.BytesIO())
            for batch in torch.utils.data.DataLoader(x.detach()):
                model(batch)
            step()
        finally:
            torch._dynamo.graph_break()

    repeat(compiled(train))


# --- record_function ---

record = torch.autograd.profiler.record_function


class Recorder(record):
    def __enter__(self) -> Any:
        return super().__enter__()


@program
def records() -> None:
    @record("above a function")
    def above(x: Any) -> Any:
        return x + 1

    def function(x: Any) -> Any:
        with record("Optimizer.step#Mine.step"), Recorder("enumerate(DataLoader)#Mine"):
            y = above(x)
            torch._dynamo.graph_break()
            return y * 2

    repeat(compiled(function))


@program
def records_made_outside() -> None:
    plain, own = record("plain"), Recorder("own")

    def function(x: Any, given: Any) -> Any:
        with plain, own, given:
            return x + 1

    repeat(lambda x: compiled(function)(x, record("given")))


@program
def records_entered_by_hand() -> None:
    handle = record("by hand")

    def function(x: Any) -> Any:
        enter = handle.__enter__
        torch._dynamo.graph_break()
        enter()
        y = x + 1
        handle.__exit__(None, None, None)
        return y

    repeat(compiled(function))


@program
def records_in_an_exit_stack() -> None:
    handle = record("stacked")

    def function(x: Any) -> Any:
        with contextlib.ExitStack() as stack:
            stack.enter_context(handle)
            torch._dynamo.graph_break()
            return x + 1

    repeat(compiled(function))


@program
def records_in_the_graph() -> None:
    name = "capture_profiler_record_function"
    known = hasattr(torch._dynamo.config, name)  # 2.7 has it not
    with torch._dynamo.config.patch({name: True} if known else {}):
        compiled_step()


# --- batches, backward, saves ---


@program
def batches() -> None:
    model, loader = linear(), torch.utils.data.DataLoader(torch.ones(3, 4))

    def over(x: Any) -> Any:
        for batch in loader:
            x = x + model(batch)
        return x

    iterator = iter(loader)
    repeat(compiled(over))
    compiled(lambda: next(iterator) + 1)()
    compiled(lambda: iterator.__next__() + 1)()


@program
def backwards() -> None:
    model = linear()

    def of_a_loss(x: Any) -> Any:
        y = model(x)
        y.register_hook(lambda gradient: gradient * 2)
        y.sum().backward()
        return y

    def of_torch(x: Any) -> Any:
        torch.autograd.backward(model(x).sum())
        return x

    def gradient(x: Any) -> Any:
        return torch.autograd.grad((x * x).sum(), x)[0] + 1

    def functional(x: Any) -> Any:
        return torch.func.grad(lambda y: (y * y).sum())(x)

    for function in (of_a_loss, of_torch, gradient, functional):
        repeat(compiled(function))


@program
def checkpoints() -> None:
    layer = compiled(linear())
    for reentrant in (False, True):
        repeat(lambda x, how=reentrant: checkpoint(layer, x, use_reentrant=how).sum().backward())

    def inside(x: Any) -> Any:
        return checkpoint(lambda y: torch.sin(y * 2), x, use_reentrant=False).sum()

    repeat(lambda x: compiled(inside)(x).backward())


@program
def saves() -> None:
    def function(x: Any) -> Any:
        torch.save(x + 1, io.BytesIO())
        return x * 2

    repeat(compiled(function))


# --- what is imported from us, and what is disabled ---


@program
def marks() -> None:
    @span("above a function")
    def above(x: Any) -> Any:
        return x + 1

    def function(x: Any) -> Any:
        with span("inside"):
            y = above(x)
        step()
        return y * 2

    repeat(compiled(function, fullgraph=True))


@program
def spans_by_hand() -> None:
    handle = span("by hand")

    def entered(x: Any) -> Any:
        handle.__enter__()
        y = x + 1
        torch._dynamo.graph_break()
        handle.__exit__(None, None, None)
        return y * 2

    def stacked(x: Any) -> Any:
        with contextlib.ExitStack() as stack:
            stack.enter_context(span("stacked"))
            torch._dynamo.graph_break()
            return x * 2

    def held(x: Any) -> Any:
        with handle:
            return x * 2

    for function in (entered, stacked, held):
        repeat(compiled(function))


@program
def disabled() -> None:
    kernel = compiled(lambda x: x * 3)
    outside = torch.compiler.disable(lambda x: kernel(x))  # noqa: PLW0108

    def triple(x: Any) -> Any:
        return x * 3

    def function(x: Any) -> Any:
        return torch.compiler.disable(triple)(outside(x + 1)) * 2

    repeat(compiled(function))


# --- what torch made of them ---


def told_of(function: Program) -> dict[str, Any]:
    torch._dynamo.reset()
    dynamo_utils.counters.clear()
    dynamo_utils.clear_compilation_metrics()
    error = None
    try:
        function()
    except Exception as raised:
        error = repr(raised)
    counters = {name: _counted(counts) for name, counts in dynamo_utils.counters.items()}
    rows = [_row(row) for row in dynamo_utils.get_compilation_metrics()]
    return {"error": error, "counters": counters, "rows": rows}


def _counted(counts: Counter[str]) -> dict[str, int]:
    """By key without addresses: a function made twice has one or two, as the allocator has it."""
    total: Counter[str] = Counter()
    for key, value in counts.items():
        total[_text(key)] += value
    return total


def _row(row: Any) -> dict[str, str]:
    """Without what two runs of one program do not share: times and addresses; and without the
    stack, on which a function of ours stands between `backward` and the engine."""
    return {
        name: _text(value)
        for name, value in dataclasses.asdict(row).items()
        if not isinstance(value, float) and not re.search(r"time|_u?s$|config|stack_trace", name)
    }


def _text(value: object) -> str:
    return re.sub(r"0x[0-9a-f]+|obj_id\(\w+, \d+\)", "", str(value))


def observe() -> None:
    from compilediag_harness import attach
    from compilediag_harness.base.session import Session

    attach.install(Session(lambda _event: None))


def main(mode: str) -> None:
    global observe_late
    if mode == "observed":
        observe()
    if mode == "late":
        observe_late = observe
    if mode == "planted":
        import torch.optim.optimizer as optimizers

        optimizers.register_optimizer_step_pre_hook(lambda *_: None)
    told = {name: told_of(function) for name, function in PROGRAMS.items()}
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])
