"""The first scores are cloned before the next run: they have memory of their own."""

import sys

import torch
from torch import nn

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cuda"


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 4, bias=False)

    def forward(self, queries):
        return self.head(queries).relu()


torch.manual_seed(0)
policy = Policy().to(DEVICE)
compiled = torch.compile(policy, mode="reduce-overhead")
queries = torch.randn(32, 16, device=DEVICE)

with torch.no_grad():
    plain = compiled(queries).clone()
    corrupted = compiled(queries + 1)
    margin = (plain - corrupted).mean()
print(f"margin {margin.item():.3f}")
