"""A positional encoding grows its table when a longer sequence arrives.

The table starts with one row, so the very first forward replaces it. The new buffer has another
shape than the one Dynamo guarded while tracing that same call: step 1 compiles everything again
although the input never changed.
"""

import torch
from torch import nn


class PositionalEncoding(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.register_buffer("table", self.build(1), persistent=False)

    def build(self, length):
        frequencies = torch.exp(torch.arange(0, self.width, 2) * (-9.2 / self.width))
        angles = torch.arange(length).unsqueeze(1) * frequencies
        return torch.cat([angles.sin(), angles.cos()], dim=1)

    def forward(self, tokens):
        length = tokens.shape[1]
        if self.table.shape[0] < length:
            self.table = self.build(length)
        return tokens + self.table[:length]


class Encoder(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.position = PositionalEncoding(width)
        self.mix = nn.Linear(width, width)

    def forward(self, tokens):
        return self.mix(self.position(tokens))


torch.manual_seed(0)
compiled = torch.compile(Encoder(), backend="eager")

for step in range(4):
    out = compiled(torch.randn(2, 12, 16))
    print(f"step {step}: {out.mean().item():.4f}")
