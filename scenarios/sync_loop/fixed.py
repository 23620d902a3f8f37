"""Train a scorer whose preference targets are built by tensor operations: nothing is read.

The loop became one expression over whole tensors. The one read that is left is the loss, once.
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
    return positions * torch.exp2(-levels)


for step in range(12):
    features = torch.randn(PAIRS, 8)
    positions = torch.rand(PAIRS, POSITIONS)
    levels = torch.randint(3, (PAIRS, POSITIONS))
    loss = F.mse_loss(compiled(features), targets_of(positions, levels))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.4f}")
