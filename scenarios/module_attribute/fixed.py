"""The temperature is a 0-dim buffer, changed in place.

Its value is data of the graph instead of a constant in it, so annealing costs nothing.
`persistent=False` keeps it out of the checkpoint.
"""

import torch
from torch import nn


class Sampler(nn.Module):
    def __init__(self):
        super().__init__()
        self.logits = nn.Linear(8, 32)
        self.register_buffer("temperature", torch.tensor(2.0), persistent=False)

    def forward(self, state):
        return torch.softmax(self.logits(state) / self.temperature, dim=-1)


torch.manual_seed(0)
sampler = Sampler()
compiled = torch.compile(sampler, backend="eager")

for step in range(4):
    sampler.temperature.fill_(2.0 - 0.25 * step)
    probabilities = compiled(torch.randn(4, 8))
    print(f"step {step}: temperature {sampler.temperature:.2f}, top {probabilities.max():.4f}")
