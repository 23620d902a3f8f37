"""The choice is made outside the compiled region.

What is expensive (the element-wise error) is compiled once; picking one of three cheap
reductions stays ordinary Python.
"""

import torch

REDUCTIONS = {"mean": torch.mean, "sum": torch.sum, "max": torch.max}


@torch.compile(backend="eager")
def squared_errors(prediction, target):
    return (prediction - target) ** 2


torch.manual_seed(0)
for step, reduction in enumerate(["mean", "sum", "max", "mean", "sum", "max"]):
    loss = REDUCTIONS[reduction](squared_errors(torch.randn(4, 8), torch.randn(4, 8)))
    print(f"step {step}: {reduction} {loss.item():.4f}")
