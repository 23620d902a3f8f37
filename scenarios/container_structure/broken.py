"""A fusion layer takes a list of feature maps, and the list has another length each time.

Dynamo unrolls the loop over the list and guards on its length: one compilation per number of
feature maps.
"""

import torch


@torch.compile(backend="eager")
def fuse(features):
    total = torch.zeros_like(features[0])
    for feature in features:
        total = total + feature.tanh()
    return total / len(features)


torch.manual_seed(0)
for step, number in enumerate([2, 3, 4, 2, 3, 4]):
    fused = fuse([torch.randn(4, 8) for _ in range(number)])
    print(f"step {step}: {number} features, mean {fused.mean().item():.4f}")
