"""A model enters autocast in its own forward.

torch does not cache a graph in which autocast is entered: AOTAutograd traces it again at every
start, however often the same program has run before. The results are right, nothing recompiles,
and the caches of inductor are used: it only shows in how long the first step takes.
"""

import torch
from torch import nn


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        scaled = [torch.randn(16, 16, dtype=torch.bfloat16) / 4 for _ in range(60)]
        self.weights = nn.ParameterList([nn.Parameter(weight) for weight in scaled])

    def forward(self, rows):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for weight in self.weights:
                rows = rows @ weight
        return rows


torch.manual_seed(0)
mixer = torch.compile(Mixer())

with torch.no_grad():
    for step in range(3):
        rows = mixer(torch.randn(4, 16, dtype=torch.bfloat16))
        print(f"step {step}: {rows.float().norm().item():.2f}")
