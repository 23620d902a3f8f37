"""Advice about what a package makes: no line of the program's own holds it."""

from __future__ import annotations

from typing import Any

import torch

from advice.case import X, case, compiled, warmed
from advice.values import package

GENERATING = """
import torch


class Model:
    def forward(self, *args, **kwargs):
        return self.step(*args, **kwargs)

    def step(self, x, mask=None):
        return (x if mask is None else x + mask) * 2


def generate(call, sizes):
    return [call(x=torch.ones(size, 4)) for size in sizes]


def masked(call, masks):
    x = torch.ones(2, 4)
    return [call(x=x, mask=x) if mask else call(x=x) for mask in masks]
"""


def generated(sizes: Any, *, dynamic: bool = False) -> list[Any]:
    library = package(GENERATING)
    call = compiled(library.Model().forward)
    with torch._dynamo.config.patch(assume_static_by_default=not dynamic):
        return library.generate(call, sizes)


case(
    "sizes that a package makes",
    ("CD105", "held"),
    lambda: generated((8, 5, 6)),
    lambda: generated((8, 5, 6), dynamic=True),
)


def masked(*, warm: bool) -> list[Any]:
    library = package(GENERATING)
    call = compiled(library.Model().forward)
    if warm:
        library.masked(call, (False, True))
        warmed()
    return library.masked(call, (False, True))


case(
    "a keyword that a package passes",
    ("CD108", "held"),
    lambda: masked(warm=False),
    lambda: masked(warm=True),
)


class Batch:
    """A container that keeps the size of its tensors as a number."""

    def __init__(self, rows: int) -> None:
        self.fields = {"seen": torch.ones(rows, 4), "advantage": torch.ones(rows)}
        self.size = (rows,)


def loss(batch: Batch) -> Any:
    if not batch.size[0]:
        return batch.fields["advantage"]
    return (batch.fields["seen"].sum(1) * batch.fields["advantage"]).sum()


def losses(*sizes: int, pad: int = 0, **options: Any) -> list[Any]:
    call, results = compiled(loss, **options), []
    for rows in sizes:
        batch = Batch(rows)
        if pad:
            fields = batch.fields.items()
            batch = Batch(pad)
            for name, field in fields:
                batch.fields[name][:] = 0
                batch.fields[name][:rows] = field
        results.append(call(batch))
    return results


case(
    "a container with its size as a number",
    ("CD105", "container"),
    lambda: losses(8, 5, 6),
    lambda: losses(8, 5, 6, dynamic=True),
    lambda: losses(8, 5, 6, pad=8),
)


FREEZING = """
from torch import nn


class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        nn.init.ones_(self.inner.weight)
        nn.init.ones_(self.inner.bias)

    def switch(self, on):
        self.inner.weight.requires_grad_(on)

    def forward(self, x):
        return self.inner(x)
"""


def switched(*, warm: bool) -> list[Any]:
    model = package(FREEZING).Adapted()
    call, results = compiled(model), []
    for times in range(2 if warm else 1):
        if times:
            warmed()
        results = []
        for on in (True, False, True):
            model.switch(on)
            results.append(call(X).detach())
    return results


case(
    "a parameter that a package freezes",
    ("CD106", "frozen_state"),
    lambda: switched(warm=False),
    lambda: switched(warm=True),
)
