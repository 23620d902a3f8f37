"""Every batch brings a mask; where nothing is padded, it is all ones.

One multiplication by one buys a single graph.
"""

import torch


@torch.compile(backend="eager")
def pool(tokens, mask):
    return (tokens * mask).sum(dim=1)


torch.manual_seed(0)
for step in range(4):
    mask = torch.ones(4, 6, 1)
    print(f"step {step}: {pool(torch.randn(4, 6, 8), mask).norm().item():.4f}")
