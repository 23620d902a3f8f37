"""A scale is taken out of a tensor with `.item()` and goes back in as a number.

The number exists only when the graph has run. Dynamo splits the function in two around it, and
on a GPU the host would wait for the device here on every call.
"""

import torch


@torch.compile(backend="eager")
def quantise(weights):
    scale = weights.abs().max().item()
    return torch.round(weights / scale * 127.0)


torch.manual_seed(0)
weights = torch.randn(64)
for step in range(3):
    print(f"step {step}: {quantise(weights).abs().sum().item():.1f}")
