"""Gradients are clipped only when their norm is too large, with a Python `if` on a tensor.

The branch depends on data that exists only when the graph runs, so Dynamo ends the graph there,
goes back to Python, and starts a second graph in the branch.
"""

import torch


@torch.compile(backend="eager")
def clip(gradient, limit):
    norm = gradient.norm()
    if norm > limit:
        gradient = gradient * (limit / norm)
    return gradient + 0.0


torch.manual_seed(0)
for step in range(3):
    clipped = clip(torch.randn(64), torch.tensor(1.0))
    print(f"step {step}: norm {clipped.norm().item():.4f}")
