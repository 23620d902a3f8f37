"""The number is drawn before the compiled call, and passed as a tensor."""

import random

import torch
from torch import nn


class Jitter(nn.Module):
    def forward(self, signal, scale):
        return signal * scale


rng = random.Random(0)
compiled = torch.compile(Jitter(), backend="eager")
for step in range(4):
    scale = torch.tensor(rng.uniform(0.5, 1.5))
    print(f"step {step}: scaled by {compiled(torch.ones(8), scale).mean().item():.4f}")
