"""The launcher's debug switch is still on: `TORCH_COMPILE_DISABLE=1`.

The script calls `torch.compile`, runs well and would report zero recompiles, zero graph breaks.
Nothing was compiled at all. That is no success, and the verdict says so.
"""

import os

os.environ["TORCH_COMPILE_DISABLE"] = "1"

import torch
from torch import nn

torch.manual_seed(0)
model = torch.compile(nn.Linear(8, 2), backend="eager")
for step in range(3):
    print(f"step {step}: {model(torch.randn(4, 8)).sum().item():.4f}")
