"""The padding mask is passed only when a batch has padding.

`None` and a tensor are two different programs to Dynamo. The first padded batch compiles the
second one, in the middle of the run.
"""

import torch


@torch.compile(backend="eager")
def pool(tokens, mask=None):
    if mask is not None:
        tokens = tokens * mask
    return tokens.sum(dim=1)


torch.manual_seed(0)
for step in range(4):
    mask = torch.ones(4, 6, 1) if step % 2 == 1 else None
    print(f"step {step}: {pool(torch.randn(4, 6, 8), mask).norm().item():.4f}")
