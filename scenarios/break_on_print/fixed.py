"""The print happens outside the compiled function."""

import torch


@torch.compile(backend="eager")
def block(tokens):
    hidden = tokens.tanh()
    return hidden * 2.0


torch.manual_seed(0)
for step in range(3):
    tokens = torch.randn(8)
    print("block sees", tuple(tokens.shape))
    print(f"step {step}: {block(tokens).sum().item():.4f}")
