"""The branch is a `torch.clamp`: the factor is one where nothing has to be clipped.

Both cases are the same arithmetic, so the whole function is one graph.
"""

import torch


@torch.compile(backend="eager")
def clip(gradient, limit):
    factor = torch.clamp(limit / gradient.norm(), max=1.0)
    return gradient * factor + 0.0


torch.manual_seed(0)
for step in range(3):
    clipped = clip(torch.randn(64), torch.tensor(1.0))
    print(f"step {step}: norm {clipped.norm().item():.4f}")
