"""A sampler anneals its temperature, kept as a plain float attribute of the module.

Dynamo first takes a float attribute for a constant of the graph. The second temperature breaks
that guard and compiles the model again, now with the number as an input. Nothing about the
tensors changed.
"""

import torch
from torch import nn


class Sampler(nn.Module):
    def __init__(self):
        super().__init__()
        self.logits = nn.Linear(8, 32)
        self.temperature = 2.0

    def forward(self, state):
        return torch.softmax(self.logits(state) / self.temperature, dim=-1)


torch.manual_seed(0)
sampler = Sampler()
compiled = torch.compile(sampler, backend="eager")

for step in range(4):
    sampler.temperature = 2.0 - 0.25 * step
    probabilities = compiled(torch.randn(4, 8))
    print(f"step {step}: temperature {sampler.temperature:.2f}, top {probabilities.max():.4f}")
