"""A program, the sentence that its finding must have, and the program with its ways taken."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._dynamo import utils

from compilediag.rules.make_finding import Advice

Program = Callable[[], Any]
"""Compiles and calls something, and returns what it computed."""


@dataclass(frozen=True)
class Case:
    """Each of the ways alone must cure the program."""

    name: str
    advice: Advice
    before: Program
    ways: tuple[Program, ...]
    equal: bool = True
    """False where the program draws random numbers."""


CASES: list[Case] = []


def case(name: str, advice: Advice, before: Program, *ways: Program, equal: bool = True) -> None:
    """Registers a program with ways of its sentence."""
    CASES.append(Case(name, advice, before, ways, equal))


def compiled(function: Any, **options: Any) -> Any:
    """As a user compiles, without waiting for a backend."""
    return torch.compile(function, backend="eager", **options)


def warmed() -> None:
    """The timed steps begin here: what was compiled before is warm-up."""
    utils.clear_compilation_metrics()


def rows(*sizes: int) -> list[torch.Tensor]:
    """A tensor of four columns for each number of rows."""
    return [torch.arange(float(size * 4)).reshape(size, 4) for size in sizes]


X = torch.arange(4.0)
OTHER = X + 1
