"""Time the forward of a scorer and nothing else; the targets have a span of their own.

The values are moved to the host once, before the loop.
"""

import torch
from torch import nn
from torch.nn import functional as F

import compilediag as cd

PAIRS, POSITIONS = 4, 16

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, POSITIONS))
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def targets_of(levels):
    return torch.tensor([[2.0**-level for level in row] for row in levels.tolist()])


for step in range(12):
    features = torch.randn(PAIRS, 8)
    levels = torch.randint(3, (PAIRS, POSITIONS))
    with cd.span("lens_forward"):
        scores = compiled(features)
    with cd.span("lens_targets"):
        targets = targets_of(levels)
    loss = F.mse_loss(scores, targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.4f}")
