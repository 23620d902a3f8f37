"""The reduction of a loss is chosen by a string argument.

Each new string is a new compilation: a string cannot become a tensor or a symbol, it is always a
constant of the graph. Three reductions, three graphs.
"""

import torch


@torch.compile(backend="eager")
def squared_error(prediction, target, reduction):
    error = (prediction - target) ** 2
    if reduction == "mean":
        return error.mean()
    if reduction == "sum":
        return error.sum()
    return error.max()


torch.manual_seed(0)
for step, reduction in enumerate(["mean", "sum", "max", "mean", "sum", "max"]):
    loss = squared_error(torch.randn(4, 8), torch.randn(4, 8), reduction)
    print(f"step {step}: {reduction} {loss.item():.4f}")
