"""The optimizer step is compiled, and a scheduler changes the learning rate, a float.

The state that the first step creates is there before compiling (one eager step). What is left
is the learning rate: its second value compiles the step again.
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)


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
    optimizer.param_groups[0]["lr"] = 0.1 * 0.5**step
    loss = loss_of(torch.randn(4, 8))
    update()
    print(f"step {step}: loss {loss.item():.4f}")
