"""A debug `print` was left in the forward function.

Printing is a side effect that must happen at that moment: the function becomes two graphs with
Python in between, on every step.
"""

import torch


@torch.compile(backend="eager")
def block(tokens):
    hidden = tokens.tanh()
    print("block sees", tuple(hidden.shape))
    return hidden * 2.0


torch.manual_seed(0)
for step in range(3):
    total = block(torch.randn(8)).sum().item()
    print(f"step {step}: {total:.4f}")
