"""Anneal a temperature every fifth step, and pass it to the compiled model as its name.

Every fifth step is slow. It looks as if logging, which happens there too, were expensive; but each
new stage is another string, torch has never seen it, and compiles the model again.
"""

import torch
from torch import nn

TEMPERATURES = {"hot": 2.0, "warm": 1.5, "mild": 1.0, "cool": 0.7, "cold": 0.5}

torch.manual_seed(0)
head = nn.Linear(8, 4)
optimizer = torch.optim.SGD(head.parameters(), lr=0.01)


@torch.compile(backend="aot_eager")
def loss_of(batch, stage):
    return torch.log_softmax(head(batch) / TEMPERATURES[stage], dim=-1).square().mean()


stages = list(TEMPERATURES)
for step in range(25):
    loss = loss_of(torch.randn(16, 8), stages[step // 5])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 5 == 0:
        print(f"step {step}: loss {loss.item():.4f}")
