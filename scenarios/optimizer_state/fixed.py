"""The learning rate is a tensor, and the schedule fills it in place.

The compiled optimizer step reads it as data, so any schedule runs on one graph.
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1)
rate = torch.tensor(0.1)
optimizer = torch.optim.Adam(model.parameters(), lr=rate, capturable=False)


@torch.compile(backend="eager")
def update():
    optimizer.step()


def loss_of(batch):
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    return loss


loss_of(torch.randn(4, 8))
optimizer.step()

for step in range(4):
    rate.fill_(0.1 * 0.5**step)
    loss = loss_of(torch.randn(4, 8))
    update()
    print(f"step {step}: loss {loss.item():.4f}")
