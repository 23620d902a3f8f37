"""Anneal a temperature every fifth step, and pass it to the compiled model as a tensor.

The value of a tensor is data: no guard looks at it, and one graph serves every stage.
"""

import torch
from torch import nn

TEMPERATURES = {"hot": 2.0, "warm": 1.5, "mild": 1.0, "cool": 0.7, "cold": 0.5}

torch.manual_seed(0)
head = nn.Linear(8, 4)
optimizer = torch.optim.SGD(head.parameters(), lr=0.01)


@torch.compile(backend="aot_eager")
def loss_of(batch, temperature):
    return torch.log_softmax(head(batch) / temperature, dim=-1).square().mean()


stages = list(TEMPERATURES)
for step in range(25):
    temperature = torch.tensor(TEMPERATURES[stages[step // 5]])
    loss = loss_of(torch.randn(16, 8), temperature)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 5 == 0:
        print(f"step {step}: loss {loss.item():.4f}")
