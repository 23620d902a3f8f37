"""A program, the wording that its finding must have, and the program with one of its ways taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._dynamo import utils

Program = Callable[[], Any]
"""Compiles and calls something, and returns what it computed."""

Key = tuple[str, "str | None"]
"""Code and kind of a wording."""


@dataclass(frozen=True)
class Case:
    """Each of the ways alone must cure the program."""

    name: str
    key: Key
    before: Program
    ways: dict[int, Program]
    """By position in the sentence, whose ways are separated by "; or "."""
    told: str | None = None
    """The sentence where the line that needs the size is known: it replaces the wording."""
    equal: bool = True
    """False where the program draws random numbers."""


CASES: list[Case] = []


def case(name: str, key: Key, before: Program, *ways: Program | None, **more: Any) -> None:
    """Registers a case; a way that is None is run by another case of the same wording."""
    taken = {index: way for index, way in enumerate(ways) if way is not None}
    CASES.append(Case(name, key, before, taken, **more))


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


@dataclass(frozen=True)
class Break:
    """A program that breaks its graph, and ways to have one graph."""

    name: str
    code: str
    before: Program
    ways: dict[int, Program]
    equal: bool = True
    told: str = ""
    """A part of the advice, where the code has several wordings."""


BREAKS: list[Break] = []


def breaking(name: str, code: str, before: Program, *ways: Program | None, **more: Any) -> None:
    """Registers a break; "explicit" is the code of those that a program asks for."""
    taken = {index: way for index, way in enumerate(ways) if way is not None}
    BREAKS.append(Break(name, code, before, taken, **more))
