"""The program exports its model, and runs what was exported.

torch traces the model with the compiler of `torch.compile` and even writes a metrics row for a strict
export. But that is no frame of the program: nothing could recompile, break or fall back at run time,
and nothing ran eager that should not. There is nothing to judge, and no fault.
"""

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
exported = torch.export.export(model, (torch.randn(4, 8),), strict=True)
for step in range(3):
    print(f"step {step}: {exported.module()(torch.randn(4, 8)).sum().item():.4f}")
