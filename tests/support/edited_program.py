"""A program's text, run in this process: what torch compiles of it."""

import itertools
import sys
import types
from typing import Any, NamedTuple

NUMBERS = itertools.count()


class Ran(NamedTuple):
    """What a program computed, and what torch made of it."""

    results: list[Any]
    """Its variable `results`."""
    graphs: int
    """Compiled by its `backend`."""
    breaks: int


def run_program(text: str) -> Ran:
    """Runs a text that has `backend`, `torch` and the list `results` given."""
    import torch
    from torch._dynamo import reset
    from torch._dynamo.testing import CompileCounter
    from torch._dynamo.utils import counters

    reset()
    counters.clear()
    backend = CompileCounter()
    name = f"program_{next(NUMBERS)}"  # torch 2.7 imports the module of a global by its name
    module: Any = types.ModuleType(name)
    space: dict[str, Any] = module.__dict__
    space |= {"backend": backend, "torch": torch, "results": []}
    sys.modules[name] = module
    try:
        exec(compile(text, "<program>", "exec"), space)
    finally:
        del sys.modules[name]
    reset()
    return Ran(space["results"], backend.frame_count, sum(counters["graph_break"].values()))
