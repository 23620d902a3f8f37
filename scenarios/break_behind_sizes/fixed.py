"""The same mean without a selection: elements outside of the mask count as zero."""

import torch


@torch.compile(backend="eager")
def positive_mean(x):
    kept = torch.where(x > 0, x, 0.0)
    return kept.sum() / (x > 0).sum() + x.std()


torch.manual_seed(0)
for step in range(4):
    print(f"step {step}: {positive_mean(torch.randn(64)).item():.4f}")
