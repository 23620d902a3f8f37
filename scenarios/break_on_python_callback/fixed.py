"""The rule is written with tensor operations and stays in the graph."""

import torch


@torch.compile(backend="eager")
def quantise(values):
    scaled = values * 4.0
    scaled = (scaled + 0.5).floor()
    return scaled / 4.0


torch.manual_seed(0)
for step in range(3):
    print(f"step {step}: {quantise(torch.rand(8)).sum().item():.2f}")
