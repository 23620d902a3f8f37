"""The container of the layers is compiled instead of each layer.

All four are traced into one graph with one set of guards, each layer under its own path.
"""

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.mix = nn.Linear(8, 8)
        self.activation = activation

    def forward(self, tokens):
        return tokens + getattr(torch, self.activation)(self.mix(tokens))


torch.manual_seed(0)
activations = ["relu", "tanh", "sigmoid", "sin"]
stack = nn.Sequential(*(Layer(activation) for activation in activations))
compiled = torch.compile(stack, backend="eager")

for step in range(3):
    tokens = compiled(torch.randn(4, 8, requires_grad=True))
    print(f"step {step}: {tokens.norm().item():.4f}")
