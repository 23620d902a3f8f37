"""The backward pass of a tried call: run for its compiles, and for gradients to compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from compilediag_harness.shapes.trees import flatten


def backward(torch: Any, result: Any) -> bool:
    """The backward pass of the sum of all outputs, whose gradients are thrown away; whether there
    was one."""
    if not torch.is_grad_enabled():
        return False
    outputs: list[Any] = []
    flatten(result, outputs)
    losses = _losses(torch, outputs)
    inputs = _leaves_behind(losses)
    if not inputs:
        return False
    ones = [torch.ones_like(leaf) for leaf in losses]
    torch.autograd.grad(losses, inputs, ones, allow_unused=True)
    return True


def gradients_of(
    torch: Any, outputs: list[Any], modules: Iterable[Any], inputs: Mapping[str, Any]
) -> dict[str, Any]:
    """The gradients of every parameter and of `inputs`, by name, for fixed weights of the real
    outputs; {} where there are none. Nothing is written to `.grad`."""
    losses = [leaf for leaf in _losses(torch, outputs) if leaf.numel()]
    names = {id(leaf): name for name, leaf in inputs.items()}
    for module in modules:
        for name, parameter in module.named_parameters():
            names.setdefault(id(parameter), name)
    wanted = [leaf for leaf in _leaves_behind(losses) if id(leaf) in names]
    if not wanted:
        return {}
    weights = [_weights(torch, leaf) for leaf in losses]
    found = torch.autograd.grad(losses, wanted, weights, allow_unused=True)
    return {
        names[id(leaf)]: gradient.detach()
        for leaf, gradient in zip(wanted, found, strict=True)
        if gradient is not None
    }


def _losses(torch: Any, outputs: list[Any]) -> list[Any]:
    return [leaf for leaf in outputs if isinstance(leaf, torch.Tensor) and leaf.requires_grad]


def _leaves_behind(outputs: list[Any]) -> list[Any]:
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


def _weights(torch: Any, like: Any) -> Any:
    """Different for every entry: a sum may be constant (softmax), whatever the entries are."""
    positions = torch.arange(like.numel(), device=like.device, dtype=torch.float32)
    return ((positions * 0.37).sin() + 0.5).reshape(like.shape).to(like.dtype)
