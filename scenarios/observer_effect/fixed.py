"""The same training step with one batch size: every frame is compiled once, watched or not."""

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

for step in range(4):
    loss = loss_of(torch.randn(6, 8))
    loss.backward()
    update()
    optimizer.zero_grad(set_to_none=False)
    print(f"step {step}: loss {loss.item():.4f}")
