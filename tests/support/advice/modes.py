"""Modes and settings of torch, hooks, backends and optimizers (CD111, CD112, CD115, CD116)."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from advice.case import OTHER, X, case, compiled, warmed
from compilediag.rules import modes as advice_of_modes
from compilediag.rules import objects as advice_of_containers


def filled(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():
        nn.init.constant_(parameter, 0.5)
    return module


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
    advice_of_modes.BOTH_MODES,
    lambda: alternated(warm=False),
    lambda: alternated(warm=True),
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
    advice_of_modes.ONE_STATE,
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
    advice_of_containers.ONE_BACKEND,
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
    advice_of_containers.HOOKS_BEFORE,
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
    advice_of_modes.LR_TENSOR,
    lambda: trained(0.1),
    lambda: trained(torch.tensor(0.1)),
    lambda: trained(0.1, outside=True),
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
    advice_of_modes.SAME_OPTIMIZER,
    lambda: grouped(early=False),
    lambda: grouped(early=True),
)
