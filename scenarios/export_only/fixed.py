"""It also trains the compiled model: the export beside it is not counted, the one frame is."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 2)

    def forward(self, x):
        return self.layer(x).relu()


torch.manual_seed(0)
model = Model()
torch.export.export(model, (torch.randn(4, 8),), strict=True)
compiled = torch.compile(model, backend="eager")
for step in range(3):
    print(f"step {step}: {compiled(torch.randn(4, 8)).sum().item():.4f}")
