"""Every batch has the same number of rows (`drop_last=True` in a data loader's words).

One forward record, one backward record, one compile.
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@torch.compile(backend="aot_eager")
def loss_of(batch):
    return torch.tanh(model(batch)).square().mean()


for step in range(4):
    loss = loss_of(torch.randn(6, 8))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.4f}")
