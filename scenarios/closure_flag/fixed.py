"""The metric is written on every step into a tensor that exists before compiling.

The hook has no flag and no Python state: the mean is a small kernel inside the graph. The loop
outside decides when to read it, which is where a cadence belongs.
"""

import torch
from torch import nn


def watch_activations(layer):
    latest = torch.zeros(())

    def record(module, inputs, output):
        latest.copy_(output.detach().mean())

    layer.register_forward_hook(record)
    return latest


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(8, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, features):
        return self.head(torch.relu(self.hidden(features)))


torch.manual_seed(0)
model = Classifier()
latest = watch_activations(model.hidden)
compiled = torch.compile(model, backend="eager")

for step in range(6):
    loss = compiled(torch.randn(4, 8)).square().mean()
    note = f", activation mean {latest.item():.4f}" if step % 2 == 1 else ""
    print(f"step {step}: loss {loss.item():.4f}{note}")
