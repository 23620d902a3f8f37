"""Warm-up: uncounted calls of a callable at every size it will run at, forward and backward.

Warmed up are exactly the sizes, the largest first: what CUDA graphs record later then fits into the
memory of those before. Modules, gradients and random states are as before afterwards.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Mapping
from typing import Any

from compilediag_harness.shapes import padded_calls, shape_log
from compilediag_harness.shapes.dims import ShapeUnusable, Sizes, repeat_rows
from compilediag_harness.shapes.layouts import FlatCall
from compilediag_harness.shapes.padded_calls import PaddedCalls
from compilediag_harness.shapes.side_effects import find_modules, preserve_modules
from compilediag_harness.shapes.trees import flatten, rebuild
from compilediag_harness.torch_internals import torch_api, torch_compiles
from compilediag_harness.wire import FixedShapeWarmed

CALLS = 2
"""At each size: what the second call still compiles, the first did not warm."""

CUDA_CALLS = 3
"""CUDA graphs warm up, record and replay."""


def warm_up(calls: PaddedCalls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Call at every size with rows of the example; returns how many compiles and recordings began.

    Raises:
        ShapeUnusable: the example has no rows, or torch does not compile for so many sizes.
    """
    torch, settings = calls.torch, calls.settings
    call = calls.read_example(args, kwargs, "warmup", ": its rows are repeated")
    graphs = math.prod(len(sizes) for sizes in settings.buckets)
    _check_limit(calls, graphs)
    with preserve_modules(torch, settings.function):
        calls.resolve_outputs(call)
        listening = padded_calls.listen_to_compiles()
        before, at, has_backward = padded_calls.list_begun(), time.monotonic(), False
        calls.frozen = None
        every = [(math.prod(sizes), sizes) for sizes in itertools.product(*settings.buckets)]
        for _, bucket in sorted(every, reverse=True):
            for _ in range(count_warm_calls(torch, call)):
                # Anew each time: a backward frees what leads to rows that need a gradient.
                repeated_args, repeated_kwargs = repeat_example(calls, call, bucket)
                result = calls.run(repeated_args, repeated_kwargs, counted=False)
                has_backward = run_backward(torch, result) or has_backward
    padded_calls.listen_to_compiles()  # Dynamo may have been imported only now
    begun = len(padded_calls.list_begun()) - len(before) if listening else 0
    of, took_s = calls.declared, time.monotonic() - at
    shape_log.sinks.emit(
        lambda t, step: FixedShapeWarmed(
            t, step, of.number, of.function, graphs, begun, has_backward, t - took_s
        )
    )
    return begun


def _check_limit(calls: PaddedCalls, graphs: int) -> None:
    """Raises above the limit at which torch runs eagerly, without a word."""
    torch, function = calls.torch, calls.settings.function
    modules = find_modules(torch, function)
    training = (f"{id(module)} {module.training}" for module in modules)
    mode = frozenset((torch.is_grad_enabled(), *training))
    calls.warmed_modes.add(mode)
    if torch_api.get_original(function) is function:
        return
    limit, modes = torch_compiles.find_recompile_limit(function), len(calls.warmed_modes)
    needed = graphs * modes
    if limit is None or needed <= limit:
        return
    times = f" in {modes} modes (gradients, training)" if modes > 1 else ""
    calls.warmed_modes.discard(mode)
    raise ShapeUnusable(
        f"{graphs} sizes{times} need {needed} graphs, but torch compiles a function {limit} times "
        "and then runs it eagerly without saying so: choose fewer sizes, or set "
        f"torch._dynamo.config.recompile_limit = {needed} before (or what torch.compile was given)"
    )


def count_warm_calls(torch: Any, call: FlatCall) -> int:
    """Count the calls after which nothing more is compiled or recorded at a size."""
    tensors = (leaf for leaf in call.leaves if isinstance(leaf, torch.Tensor))
    return CUDA_CALLS if any(leaf.is_cuda for leaf in tensors) else CALLS


def repeat_example(
    calls: PaddedCalls, call: FlatCall, sizes: Sizes
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Build the arguments of a call at exactly one size, with rows of `call` as often as needed."""
    torch, leaves = calls.torch, list(call.leaves)
    for leaf in call.layout.padded:
        given = leaves[leaf.index]
        rows = given.detach().requires_grad_(given.requires_grad)  # none reaches the example
        leaves[leaf.index] = repeat_rows(torch, rows, {dim: sizes[axis] for axis, dim in leaf.dims})
    return rebuild((call.args, call.kwargs), iter(leaves))


def run_backward(torch: Any, result: Any) -> bool:
    """Run the backward pass of the sum of all outputs, whose gradients are thrown away; False where
    nothing needs a gradient."""
    if not torch.is_grad_enabled():
        return False
    losses = _select_losses(torch, flatten(result)[1])
    inputs = _find_leaves(losses)
    if not inputs:
        return False
    ones = [torch.ones_like(leaf) for leaf in losses]
    torch.autograd.grad(losses, inputs, ones, allow_unused=True)
    return True


def compute_gradients(
    torch: Any, outputs: list[Any], modules: Iterable[Any], inputs: Mapping[str, Any]
) -> dict[str, Any]:
    """Compute the gradients of every parameter and of `inputs`, by name, for fixed weights of the
    real outputs; {} where there are none. Nothing is written to `.grad`."""
    losses = [leaf for leaf in _select_losses(torch, outputs) if leaf.numel()]
    names = {id(leaf): name for name, leaf in inputs.items()}
    for module in modules:
        for name, parameter in module.named_parameters():
            names.setdefault(id(parameter), name)
    wanted = [leaf for leaf in _find_leaves(losses) if id(leaf) in names]
    pairs = zip(wanted, compute_weighted_gradients(torch, losses, wanted), strict=True)
    return {names[id(leaf)]: grad.detach() for leaf, grad in pairs if grad is not None}


def compute_weighted_gradients(
    torch: Any, outputs: list[Any], wanted: list[Any]
) -> tuple[Any, ...]:
    """Compute the gradient of each wanted tensor, None where it has none, for fixed weights."""
    if not wanted or not outputs:
        return (None,) * len(wanted)
    weights: list[Any] = []
    for leaf in outputs:
        # Different for every entry: a sum may be constant (softmax), whatever the entries are.
        at = torch.arange(leaf.numel(), device=leaf.device, dtype=torch.float32)
        weights.append(((at * 0.37).sin() + 0.5).reshape(leaf.shape).to(leaf.dtype))
    return torch.autograd.grad(outputs, wanted, weights, allow_unused=True)


def _select_losses(torch: Any, outputs: list[Any]) -> list[Any]:
    return [leaf for leaf in outputs if isinstance(leaf, torch.Tensor) and leaf.requires_grad]


def _find_leaves(outputs: list[Any]) -> list[Any]:
    """Find the tensors that a backward pass from `outputs` would give a gradient, each once."""
    leaves: dict[int, Any] = {}
    waiting = [output.grad_fn for output in outputs if output.grad_fn is not None]
    met = set(waiting)
    while waiting:
        node = waiting.pop()
        variable = getattr(node, "variable", None)
        if variable is not None:
            leaves.setdefault(id(variable), variable)
        for after, _ in node.next_functions:
            if after is not None and after not in met:
                met.add(after)
                waiting.append(after)
    return list(leaves.values())
