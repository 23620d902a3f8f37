"""A training step with a backward pass, and one batch of another size.

Backward graphs leave compile records of their own, beside the forward's and under the same id.
Counting them would double every number: there is one frame, it was compiled twice, and there was
one recompile.
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@torch.compile(backend="aot_eager")
def loss_of(batch):
    return torch.tanh(model(batch)).square().mean()


for step, rows in enumerate([6, 6, 4, 4]):
    loss = loss_of(torch.randn(rows, 8))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: {rows} rows, loss {loss.item():.4f}")
