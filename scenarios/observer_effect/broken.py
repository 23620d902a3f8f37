"""A whole training step: compiled model, backward, compiled optimizer step, one new batch size.

Every part of torch that a tool might disturb is here. The counts under observation must be the
ones of a plain run: no extra frame, no extra graph break, no extra recompile.
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)


@torch.compile(backend="aot_eager")
def loss_of(batch):
    return model(batch).square().mean()


@torch.compile(backend="aot_eager")
def update():
    optimizer.step()


loss_of(torch.randn(6, 8)).backward()
optimizer.step()
optimizer.zero_grad(set_to_none=False)

for step, rows in enumerate([6, 6, 4, 4]):
    loss = loss_of(torch.randn(rows, 8))
    loss.backward()
    update()
    optimizer.zero_grad(set_to_none=False)
    print(f"step {step}: {rows} rows, loss {loss.item():.4f}")
