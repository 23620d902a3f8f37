"""Train a model whose score is compiled during warm-up, with the size it will be asked for.

The call before the loop costs what it cost later, but before anything is timed.
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 1))
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


@torch.compile(backend="aot_eager")
def score(outputs):
    return torch.quantile(outputs.detach().abs(), 0.9)


score(compiled(torch.randn(16, 8)))
for step in range(18):
    outputs = compiled(torch.randn(16, 8))
    outputs.square().mean().backward()
    if step == 12:
        print(f"step {step}: score {score(outputs).item():.4f}")
    optimizer.step()
    optimizer.zero_grad()
