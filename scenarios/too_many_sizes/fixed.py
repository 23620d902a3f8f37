"""The same policy behind `compilediag.FixedShape`: two sizes, two graphs, recorded in the warm-up."""

import sys

import torch
from torch import nn

import compilediag as cd

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
compiled = torch.compile(policy, mode="reduce-overhead", dynamic=False)
score = cd.FixedShape(compiled, dims={"candidates": 0}, buckets=[40, 80])

with torch.no_grad():
    score.warmup(torch.zeros(40, 8, device=DEVICE), late="error")
    best = [score(torch.randn(rows, 8, device=DEVICE)).max().clone() for rows in CANDIDATES]
print(f"mean of the best scores {torch.stack(best).mean().item():.3f}")
