"""Compile a deep model of equal blocks as one graph.

torch traces and differentiates each of the hundred blocks, though all do the same: compiling takes
about fifty times as long as that of two blocks.
"""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.gate = nn.Linear(width, width)

    def forward(self, x):
        inner = self.norm(x)
        gate = torch.softmax(self.gate(inner), dim=-1)
        return x + gate * self.mix(inner)


class Deep(nn.Module):
    def __init__(self, width=16, depth=100):
        super().__init__()
        self.layers = nn.ModuleList(Block(width) for _ in range(depth))

    def forward(self, hidden):
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


torch.manual_seed(0)
model = Deep()
compiled = torch.compile(model, backend="aot_eager")
with torch.no_grad():
    for step in range(4):
        print(f"step {step}: {compiled(torch.ones(4, 16)).sum().item():.4f}")
