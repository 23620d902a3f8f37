"""Advice about what a package makes: no line of the program's own holds it."""

from typing import Any

import torch

from advice.case import X, case, compiled
from advice.values import package
from compilediag.rules.breaks import rule as advice_of_break_fixes
from compilediag.rules.sizes import advice as advice_of_sizes

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
    advice_of_sizes.OF_PACKAGE,
    lambda: generated((8, 5, 6)),
    lambda: generated((8, 5, 6), dynamic=True),
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
    advice_of_sizes.IN_CONTAINER,
    lambda: losses(8, 5, 6),
    lambda: losses(8, 5, 6, dynamic=True),
    lambda: losses(8, 5, 6, pad=8),
)


CHECKING = """
def checked(x):
    if x.isnan().any():
        x = x.nan_to_num()
    return x * 3
"""


def checked_inside() -> Any:
    library = package(CHECKING)
    return compiled(lambda x: library.checked(x * 2) + 1)(X)


def checked_outside() -> Any:
    library = package(CHECKING)
    doubled = compiled(lambda x: x * 2, fullgraph=True)(X)
    return compiled(lambda x: x + 1, fullgraph=True)(library.checked(doubled))


case("a check within a package", advice_of_break_fixes.OF_PACKAGE, checked_inside, checked_outside)
