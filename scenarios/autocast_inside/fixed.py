"""The same model, called under autocast.

The state of autocast is part of the key of AOTAutograd's cache, so that the second start of the
program finds what the first one made.
"""

import torch
from torch import nn


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        scaled = [torch.randn(16, 16, dtype=torch.bfloat16) / 4 for _ in range(60)]
        self.weights = nn.ParameterList([nn.Parameter(weight) for weight in scaled])

    def forward(self, rows):
        for weight in self.weights:
            rows = rows @ weight
        return rows


torch.manual_seed(0)
mixer = torch.compile(Mixer())

with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
    for step in range(3):
        rows = mixer(torch.randn(4, 16, dtype=torch.bfloat16))
        print(f"step {step}: {rows.float().norm().item():.2f}")
