"""Containers that grow or change their keys, and caches (CD102, CD103, CD104, CD108, CD109,
CD114)."""

from typing import Any

import torch
from torch import nn

from advice.case import OTHER, X, case, compiled, warmed
from compilediag.rules import objects as advice_of_containers
from compilediag.rules import tensors as advice_of_tensors

INPUTS = [X + count for count in range(4)]


# --- a container that others fill -----------------------------------------------------------------


class Counting(nn.Module):
    """Reads the length of a list."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def forward(self, x: Any) -> Any:
        return x * (1 + len(self.seen))


def counted() -> Any:
    module = Counting()
    call, results = compiled(module), []
    for x in INPUTS:
        results.append(call(x))
        module.seen.append(x)
    return results


def length_passed() -> Any:
    call = compiled(lambda x, length: x * (1 + length))
    return [call(x, torch.tensor(length)) for length, x in enumerate(INPUTS)]


case("the length of a module's list", advice_of_containers.MOVED_OUTSIDE, counted, length_passed)

# --- arguments ------------------------------------------------------------------------------------


def summed(batch: dict[str, Any]) -> Any:
    return batch["x"] + batch["bias"] if "bias" in batch else batch["x"] + 0


WITH, WITHOUT = {"x": X, "bias": OTHER}, {"x": X}


def calls(function: Any, *given: Any, warm: bool = False) -> Any:
    """Dicts are passed by keyword, tuples by position."""
    call = compiled(function)

    def all_of() -> list[Any]:
        return [call(**each) if isinstance(each, dict) else call(*each) for each in given]

    if warm:
        all_of()
        warmed()
    return all_of()


case(
    "a missing key",
    advice_of_containers.SAME_STRUCTURE,
    lambda: calls(summed, (WITH,), (WITHOUT,)),
    lambda: calls(summed, (WITH,), ({"x": X, "bias": torch.zeros(4)},)),
    lambda: calls(summed, (WITH,), (WITHOUT,), warm=True),
)


def biased(x: Any, **options: Any) -> Any:
    return x + options["bias"] if "bias" in options else x + 0


case(
    "a keyword that some calls pass",
    advice_of_containers.KEYWORDS,
    lambda: calls(biased, WITHOUT, WITH),
    lambda: calls(biased, WITHOUT, WITH, warm=True),
    lambda: calls(biased, {"x": X, "bias": torch.zeros(4)}, WITH),
)


def shift_maybe(x: Any, bias: Any) -> Any:
    return x if bias is None else x + bias


case(
    "an optional tensor",
    advice_of_containers.OPTIONAL,
    lambda: calls(shift_maybe, (X, OTHER), (X, None), (X, OTHER)),
    lambda: calls(shift_maybe, (X, OTHER), (X, None), (X, OTHER), warm=True),
    lambda: calls(shift_maybe, (X, OTHER), (X, torch.zeros(4)), (X, OTHER)),
)


class Lazy(nn.Module):
    """Computes a table in its first call."""

    def __init__(self, *, early: bool = False) -> None:
        super().__init__()
        self.table: Any = torch.ones(4) * 2 if early else None

    def forward(self, x: Any) -> Any:
        if self.table is None:
            self.table = torch.ones(4) * 2
        return x + self.table


def lazy(*, early: bool = False, eager: bool = False) -> Any:
    module = Lazy(early=early)
    if eager:
        module(X)
    call = compiled(module)
    return [call(X) for _ in range(3)]


case(
    "a table that is created in the first call",
    advice_of_tensors.FILLED_BEFORE,
    lazy,
    lambda: lazy(early=True),
    lambda: lazy(eager=True),
)
