"""A warm-up schedule writes the loss weight into a module-level name.

A global number is a constant of the graph, whatever its type. Each step of the schedule is a
new compilation until the weight stops moving.
"""

import torch

AUXILIARY_WEIGHT = 0


@torch.compile(backend="eager")
def total_loss(main, auxiliary):
    return main.mean() + AUXILIARY_WEIGHT * auxiliary.mean()


torch.manual_seed(0)
for step in range(6):
    AUXILIARY_WEIGHT = min(step, 3)
    loss = total_loss(torch.randn(8), torch.randn(8))
    print(f"step {step}: weight {AUXILIARY_WEIGHT}, loss {loss.item():.4f}")
