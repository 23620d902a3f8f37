"""Time the forward of a scorer, and time the building of its targets with it.

The span is called `lens_forward` and says milliseconds, but the model is called once in it: the
rest is a Python loop that reads one value after the other. Whoever reads the time makes the model
faster, which changes nothing.
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
    return torch.tensor([[2.0**-level.item() for level in row] for row in levels])


for step in range(12):
    features = torch.randn(PAIRS, 8)
    levels = torch.randint(3, (PAIRS, POSITIONS))
    with cd.span("lens_forward"):
        scores = compiled(features)
        targets = targets_of(levels)
    loss = F.mse_loss(scores, targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.4f}")
