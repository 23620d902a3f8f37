"""Modes and settings of torch, hooks, backends and optimizers (CD111, CD112, CD115, CD116)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from advice.case import OTHER, X, case, compiled, warmed


def filled(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():
        nn.init.constant_(parameter, 0.5)
    return module


def under(modes: Any, *, warm: bool = False, function: Any = None) -> list[Any]:
    """One call under each of the modes."""
    call = compiled(function or (lambda x: x @ x))
    results: list[Any] = []
    for times in range(2 if warm else 1):
        if times:
            warmed()
        results = []
        for mode in modes:
            with mode():
                results.append(call(torch.ones(4, 4)).float())
    return results


MODEL = filled(nn.Linear(4, 4))
GRADIENTS = (contextlib.nullcontext, torch.no_grad)
case(
    "without gradients",
    ("CD111", "grad_mode"),
    lambda: [result.detach() for result in under(GRADIENTS, function=MODEL)],
    lambda: [result.detach() for result in under(GRADIENTS, function=MODEL, warm=True)],
)
INFERENCE = (contextlib.nullcontext, torch.inference_mode)
case(
    "inference mode",
    ("CD111", "inference_mode"),
    lambda: [result.clone().detach() for result in under(INFERENCE, function=MODEL)],
    lambda: [result.clone().detach() for result in under(INFERENCE, function=MODEL, warm=True)],
)


def autocast() -> Any:
    return torch.autocast("cpu", torch.bfloat16)


AUTOCAST = (autocast, contextlib.nullcontext)


def inside(x: Any) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return x @ x


case(
    "autocast",
    ("CD111", "autocast"),
    lambda: under(AUTOCAST),
    lambda: under([contextlib.nullcontext] * 2, function=inside),
    lambda: under(AUTOCAST, warm=True),
)


def mapped(*, warm: bool, same: bool = False) -> list[Any]:
    call = compiled(lambda x: x * 2)
    ways = [torch.func.vmap(call), torch.func.vmap(call) if same else call]
    results: list[Any] = []
    for times in range(2 if warm else 1):
        if times:
            warmed()
        results = [way(torch.ones(4, 4)) for way in ways]
    return results


case(
    "inside and outside vmap",
    ("CD111", None),
    lambda: mapped(warm=False),
    lambda: mapped(warm=False, same=True),
    lambda: mapped(warm=True),
)


def alternated(*, warm: bool) -> list[Any]:
    model = nn.Sequential(filled(nn.Linear(4, 4)), nn.Dropout(0.0))
    call, results = compiled(model), []
    for times in range(2 if warm else 1):
        if times:
            warmed()
        results = []
        for training in (True, False):
            model.train(training)
            results.append(call(X))
    return results


case(
    "train and eval",
    ("CD111", "train_eval"),
    lambda: alternated(warm=False),
    lambda: alternated(warm=True),
)


def on_device(*, around_call: bool) -> list[Any]:
    call = compiled(lambda x: x * 2)
    results = [call(X)]
    with torch.device("cpu"):
        made = torch.ones(4)
        if around_call:
            results.append(call(made))
    return results if around_call else [*results, call(made)]


case(
    "a default device",
    ("CD111", "default_device"),
    lambda: on_device(around_call=True),
    lambda: on_device(around_call=False),
)


def precision(*, early: bool) -> list[Any]:
    before = torch.get_float32_matmul_precision()
    if early:
        torch.set_float32_matmul_precision("high")
    call = compiled(lambda x: x * 2)
    results = [call(X)]
    torch.set_float32_matmul_precision("high")
    results.append(call(X))
    torch.set_float32_matmul_precision(before)
    return results


case(
    "a setting",
    ("CD111", "set_once"),
    lambda: precision(early=False),
    lambda: precision(early=True),
)


def backends(*, once: bool) -> list[Any]:
    def make() -> Callable[..., Any]:
        return lambda graph, inputs: graph

    def double(x: Any) -> Any:
        return x * 2

    if once:
        call = torch.compile(double, backend=make())
        return [call(X) for _ in range(3)]
    return [torch.compile(double, backend=make())(X) for _ in range(3)]


case(
    "a backend per call",
    ("CD112", None),
    lambda: backends(once=False),
    lambda: backends(once=True),
)


def hooks(*, early: bool) -> list[Any]:
    model, factor = nn.Sequential(filled(nn.Linear(4, 4))), torch.ones(())

    def double(module: Any, args: Any, output: Any) -> Any:
        return output * 2

    def scale(module: Any, args: Any, output: Any) -> Any:
        return output * factor

    model[0].register_forward_hook(lambda module, args, output: output + 1)
    if early:
        model[0].register_forward_hook(scale)
    call = compiled(model)
    results = [call(X)]
    if early:
        factor.fill_(2)
    else:
        model[0].register_forward_hook(double)
    return [*results, call(X)]


case(
    "one more hook",
    ("CD115", None),
    lambda: hooks(early=False),
    lambda: hooks(early=True),
)

# --- optimizers -----------------------------------------------------------------------------------


def trained(lr: Any, *, outside: bool = False) -> Any:
    weight = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.AdamW([weight], lr=lr)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    step = optimizer.step if outside else compiled(optimizer.step)
    call = compiled(lambda x: (x * weight).sum())
    for _ in range(5):
        call(OTHER).backward()
        step()
        optimizer.zero_grad(set_to_none=False)
        scheduler.step()
    return weight.detach()


case(
    "a learning rate that is scheduled",
    ("CD116", "lr"),
    lambda: trained(0.1),
    lambda: trained(torch.tensor(0.1)),
    lambda: trained(0.1, outside=True),
)


def cycled(*, momentum: bool) -> Any:
    weight = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.RMSprop([weight], lr=torch.tensor(0.1), momentum=0.9)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.5, total_steps=10, cycle_momentum=momentum
    )
    step = compiled(optimizer.step)
    for _ in range(4):
        (OTHER * weight).sum().backward()
        step()
        optimizer.zero_grad(set_to_none=False)
        scheduler.step()
    return weight.detach()


case(
    "a momentum that is scheduled",
    ("CD116", "option"),
    lambda: cycled(momentum=True),
    lambda: cycled(momentum=False),
    equal=False,
)


def stateful(*, warm: bool) -> Any:
    weight = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=torch.tensor(0.1), momentum=0.9)
    step = compiled(optimizer.step)
    for times in range(4):
        (OTHER * weight).sum().backward()
        step()
        optimizer.zero_grad(set_to_none=False)
        if warm and times == 1:
            warmed()
    return weight.detach()


case(
    "the state of an optimizer",
    ("CD116", None),
    lambda: stateful(warm=False),
    lambda: stateful(warm=True),
)


def some_without(*, zeroed: bool) -> Any:
    used, rare = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([used, rare], lr=torch.tensor(0.1))
    if zeroed:
        used.grad, rare.grad = torch.zeros(4), torch.zeros(4)
    step = compiled(optimizer.step)
    for times in range(4):
        loss = (OTHER * used).sum() + ((X * rare).sum() if times % 2 else 0)
        loss.backward()
        step()
        optimizer.zero_grad(set_to_none=not zeroed)
    return used.detach(), rare.detach()


case(
    "a parameter that is rarely used",
    ("CD116", ".grad"),
    lambda: some_without(zeroed=False),
    lambda: some_without(zeroed=True),
)


def grouped(*, early: bool) -> Any:
    used, late = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))
    used.grad, late.grad = torch.ones(4), torch.zeros(4)
    optimizer = torch.optim.SGD([used], lr=torch.tensor(0.1))
    if early:
        optimizer.add_param_group({"params": [late]})
    step = compiled(optimizer.step)
    step()
    if not early:
        optimizer.add_param_group({"params": [late]})
    step()
    step()
    return used.detach(), late.detach()


case(
    "a group that is added",
    ("CD116", "param_groups"),
    lambda: grouped(early=False),
    lambda: grouped(early=True),
)
