"""Train a scorer whose preference targets are built position by position on the host.

The targets come from the batch's own positions and levels. Reading them with `.item()` in a nested
loop makes the host wait for the device once a read: 128 times in every step, while the model itself
needs one call.
"""

import torch
from torch import nn
from torch.nn import functional as F

PAIRS, POSITIONS = 4, 16

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, POSITIONS))
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def targets_of(positions, levels):
    targets = torch.zeros(PAIRS, POSITIONS)
    for pair in range(PAIRS):
        for place in range(POSITIONS):
            level = levels[pair, place].item()
            targets[pair, place] = positions[pair, place].item() * 2.0**-level
    return targets


for step in range(12):
    features = torch.randn(PAIRS, 8)
    positions = torch.rand(PAIRS, POSITIONS)
    levels = torch.randint(3, (PAIRS, POSITIONS))
    loss = F.mse_loss(compiled(features), targets_of(positions, levels))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.4f}")
