"""The matmul precision is set before anything is compiled.

Global numeric settings belong at the top of the program, ahead of the first compiled call.
"""

import torch
from torch import nn


def allow_fast_matmul():
    torch.set_float32_matmul_precision("high")


torch.manual_seed(0)
allow_fast_matmul()
model = torch.compile(nn.Linear(8, 8), backend="eager")

for step in range(4):
    out = model(torch.randn(4, 8))
    print(f"step {step}: {torch.get_float32_matmul_precision()}, {out.norm().item():.4f}")
