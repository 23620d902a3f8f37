"""The metric hook is registered before the first compiled call.

It is traced into the graph and writes its tensor on every step.
"""

import torch
from torch import nn


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(8, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, features):
        return self.head(torch.relu(self.hidden(features)))


torch.manual_seed(0)
model = Regressor()
mean = torch.zeros(())


def record(module, inputs, output):
    mean.copy_(output.detach().mean())


model.hidden.register_forward_hook(record)
compiled = torch.compile(model, backend="eager")

for step in range(4):
    out = compiled(torch.randn(4, 8))
    print(f"step {step}: {out.mean().item():.4f}, activation mean {mean.item():.4f}")
