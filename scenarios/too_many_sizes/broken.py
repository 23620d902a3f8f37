"""A policy scores queries with their corruptions, of which every query has another number.

It was compiled once, for any number of candidates; but a CUDA graph is of one size, so each new
number warms up and is recorded, and keeps a graph and its memory.
"""

import sys

import torch
from torch import nn

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cuda"
CANDIDATES = (40, 28, 62, 65, 77, 63) * 3


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, candidates):
        return self.layers(candidates).squeeze(-1)


torch.manual_seed(0)
policy = Policy().to(DEVICE)
compiled = torch.compile(policy, mode="reduce-overhead", dynamic=True)

with torch.no_grad():
    best = [compiled(torch.randn(rows, 8, device=DEVICE)).max().clone() for rows in CANDIDATES]
print(f"mean of the best scores {torch.stack(best).mean().item():.3f}")
