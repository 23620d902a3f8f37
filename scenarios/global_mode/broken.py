"""The matmul precision is set after the first step, by a helper that was imported late.

The setting is part of the global state that every compiled graph is guarded on. Changing it
makes everything compiled so far compile again.
"""

import torch
from torch import nn


def allow_fast_matmul():
    torch.set_float32_matmul_precision("high")


torch.manual_seed(0)
model = torch.compile(nn.Linear(8, 8), backend="eager")

for step in range(4):
    out = model(torch.randn(4, 8))
    print(f"step {step}: {torch.get_float32_matmul_precision()}, {out.norm().item():.4f}")
    if step == 1:
        allow_fast_matmul()
