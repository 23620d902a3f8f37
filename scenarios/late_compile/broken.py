"""Train a model whose score is compiled too, and first asked for in the middle of the run.

Twelve steps take milliseconds, then one takes a hundred times as long: the first call of `score`
compiles it. In an average over the run, or in the step somebody looks at, that is not the training.
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


for step in range(18):
    outputs = compiled(torch.randn(16, 8))
    outputs.square().mean().backward()
    if step == 12:
        print(f"step {step}: score {score(outputs).item():.4f}")
    optimizer.step()
    optimizer.zero_grad()
