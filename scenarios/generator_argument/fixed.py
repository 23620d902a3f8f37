"""The feature maps arrive as a list, which Dynamo can unroll."""

import torch


@torch.compile(backend="eager")
def fuse(features):
    total = torch.zeros(4)
    for feature in features:
        total = total + feature.tanh()
    return total


@torch.compile(backend="eager")
def head(fused):
    return fused.softmax(dim=-1)


torch.manual_seed(0)
for step in range(3):
    fused = fuse([torch.randn(4) for _ in range(3)])
    print(f"step {step}: {head(fused).max().item():.4f}")
