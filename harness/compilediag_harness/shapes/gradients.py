"""Gradients of real rows, to compare those of a padded and of an unpadded call."""

from __future__ import annotations

from typing import Any

from compilediag_harness.shapes.side_effects import modules_of
from compilediag_harness.shapes.warming import leaves_behind


def gradients_of(torch: Any, outputs: list[Any], function: Any) -> dict[str, Any]:
    """The gradients of every parameter, by name, for fixed weights of the real outputs; {} where
    there are none. Nothing is written to `.grad`."""
    tensors = (leaf for leaf in outputs if isinstance(leaf, torch.Tensor))
    losses = [leaf for leaf in tensors if leaf.requires_grad and leaf.numel()]
    names = _names(torch, function)
    parameters = [leaf for leaf in leaves_behind(losses) if id(leaf) in names]
    if not parameters:
        return {}
    weights = [_weights(torch, leaf) for leaf in losses]
    found = torch.autograd.grad(losses, parameters, weights, allow_unused=True)
    return {
        names[id(leaf)]: gradient.detach()
        for leaf, gradient in zip(parameters, found, strict=True)
        if gradient is not None
    }


def _names(torch: Any, function: Any) -> dict[int, str]:
    return {
        id(parameter): name
        for module in modules_of(function, torch.nn.Module)
        for name, parameter in module.named_parameters()
    }


def _weights(torch: Any, like: Any) -> Any:
    """Different for every entry: a sum may be constant (softmax), whatever the entries are."""
    places = torch.arange(like.numel(), device=like.device, dtype=torch.float32)
    return ((places * 0.37).sin() + 0.5).reshape(like.shape).to(like.dtype)
