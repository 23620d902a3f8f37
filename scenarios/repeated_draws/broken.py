"""Noise is scaled by a number from the module's own `random.Random`: every call gets the same one.

torch stores the state that the generator has while it traces, and guards its type alone. Each call
of the graph draws from that state again, and puts the generator back behind it.
"""

import random

import torch
from torch import nn


class Jitter(nn.Module):
    def __init__(self):
        super().__init__()
        self.rng = random.Random(0)

    def forward(self, signal):
        return signal * self.rng.uniform(0.5, 1.5)


compiled = torch.compile(Jitter(), backend="eager")
for step in range(4):
    print(f"step {step}: scaled by {compiled(torch.ones(8)).mean().item():.4f}")
