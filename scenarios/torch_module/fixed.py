"""What `torch.compile(model)` returns is called: Dynamo traces through torch.nn from there."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
compiled = torch.compile(model, backend="eager")
for step in range(3):
    print(f"step {step}: {compiled(torch.randn(4, 8)).sum().item():.4f}")
