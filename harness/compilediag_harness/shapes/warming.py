"""Calls a callable once at every size it will run at, forward and backward, before it counts.

Exactly the sizes, the largest first: what CUDA graphs record later then fits into the memory of
those before. Modules, gradients and random states are as before afterwards.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from typing import Any

from compilediag_harness.shapes import compile_watch, shape_log
from compilediag_harness.shapes.call_parts import Call
from compilediag_harness.shapes.output_search import outputs_of
from compilediag_harness.shapes.padded_calls import PaddedCalls
from compilediag_harness.shapes.shape_errors import ShapeUnusable
from compilediag_harness.shapes.side_effects import ModuleState, RandomStates, modules_of
from compilediag_harness.shapes.trees import flatten
from compilediag_harness.torch_internals import torch_api, torch_compiles
from compilediag_harness.wire import FixedShapeWarmed

CALLS = 2
"""At each size: what the second call still compiles, the first did not warm."""

CUDA_CALLS = 3
"""CUDA graphs warm up, record and replay."""


def warm(calls: PaddedCalls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Calls at every size with rows of the example; how many compiles and recordings began.

    Raises:
        ShapeUnusable: the example has no rows, or torch would not compile for so many sizes.
    """
    torch, settings = calls.torch, calls.settings
    call = calls.read(args, kwargs)
    if 0 in call.sizes:
        raise ShapeUnusable("warmup needs an example with at least one row: its rows are repeated")
    graphs = math.prod(len(its) for its in settings.buckets)
    modules = modules_of(settings.function, torch.nn.Module)
    _check_limit(calls, graphs, frozenset((torch.is_grad_enabled(), *_training(modules))))
    state, random_states = ModuleState(torch, modules), RandomStates.now(torch)
    outputs_of(calls, call)
    listening = compile_watch.listen()
    began, at, seen = compile_watch.begun(), time.monotonic(), False
    calls.frozen = None
    try:
        for bucket in _largest_first(settings.buckets):
            given = repeated(calls, call, bucket)
            for _ in range(times_to_warm(torch, call)):
                seen = backward(torch, calls.run(*given, counted=False)) or seen
    finally:
        state.put_back()
        random_states.put_back(torch)
    compile_watch.listen()  # Dynamo may have been imported only now
    begun = len(compile_watch.since(began)) if listening else 0
    of, took_s = calls.declared, time.monotonic() - at
    shape_log.tell(
        lambda t, step: FixedShapeWarmed(
            t, step, of.number, of.function, graphs, begun, seen, t - took_s
        )
    )
    return begun


def _training(modules: list[Any]) -> Iterator[str]:
    for module in modules:
        yield f"{id(module)} {module.training}"


def _check_limit(calls: PaddedCalls, graphs: int, mode: frozenset[Any]) -> None:
    """Above the limit torch runs eagerly, without a word."""
    calls.warmed_modes.add(mode)
    function = calls.settings.function
    if torch_api.original_of(function) is function:
        return
    limit = torch_compiles.recompile_limit_of(function)
    needed = graphs * len(calls.warmed_modes)
    if limit is None or needed <= limit:
        return
    modes = len(calls.warmed_modes)
    times = f" in {modes} modes (gradients, training)" if modes > 1 else ""
    calls.warmed_modes.discard(mode)
    raise ShapeUnusable(
        f"{graphs} sizes{times} need {needed} graphs, but torch compiles a function {limit} times "
        "and then runs it eagerly without saying so: choose fewer sizes, or set "
        f"torch._dynamo.config.recompile_limit = {needed} before (or what torch.compile was given)"
    )


def _largest_first(buckets: tuple[tuple[int, ...], ...]) -> list[tuple[int, ...]]:
    return sorted(itertools.product(*buckets), key=lambda its: (math.prod(its), its), reverse=True)


def times_to_warm(torch: Any, call: Call) -> int:
    """Calls after which nothing more is compiled or recorded at a size."""
    tensors = (leaf for leaf in call.leaves if isinstance(leaf, torch.Tensor))
    return CUDA_CALLS if any(leaf.is_cuda for leaf in tensors) else CALLS


def repeated(
    calls: PaddedCalls, call: Call, bucket: tuple[int, ...]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call at exactly one size, with rows of `call` as often as needed."""
    torch, leaves = calls.torch, list(call.leaves)
    for leaf in call.layout.padded:
        rows = leaves[leaf.place]
        for axis, dim in leaf.dims:
            # Real rows again and again: they are valid where made-up ones may not be.
            again = torch.arange(bucket[axis], device=rows.device) % call.sizes[axis]
            rows = rows.index_select(dim, again)
        leaves[leaf.place] = rows
    return calls.arguments(call, leaves)


def backward(torch: Any, result: Any) -> bool:
    """The backward pass of the sum of all outputs, whose gradients are thrown away; whether there
    was one."""
    if not torch.is_grad_enabled():
        return False
    outputs: list[Any] = []
    flatten(result, outputs)
    tensors = (leaf for leaf in outputs if isinstance(leaf, torch.Tensor))
    losses = [leaf for leaf in tensors if leaf.requires_grad]
    inputs = leaves_behind(losses)
    if not inputs:
        return False
    ones = [torch.ones_like(leaf) for leaf in losses]
    torch.autograd.grad(losses, inputs, ones, allow_unused=True)
    return True


def leaves_behind(outputs: list[Any]) -> list[Any]:
    """The tensors that a backward pass from `outputs` would give a gradient, each once."""
    found: dict[int, Any] = {}
    waiting = [output.grad_fn for output in outputs if output.grad_fn is not None]
    met = set(waiting)
    while waiting:
        node = waiting.pop()
        variable = getattr(node, "variable", None)
        if variable is not None:
            found.setdefault(id(variable), variable)
        for after, _ in node.next_functions:
            if after is not None and after not in met:
                met.add(after)
                waiting.append(after)
    return list(found.values())
