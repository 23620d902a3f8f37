"""Score batches with a model that reads eight thousand numbers of a Python list in each call.

The sum is a constant of the graph, but whether it still is one is found out before every call: torch
compares each of the numbers with what it was.
"""

import torch
from torch import nn


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 4)
        self.weights = [number % 7 for number in range(8000)]

    def forward(self, batch):
        return self.linear(batch) / sum(self.weights)


torch.manual_seed(0)
score = torch.compile(Scorer(), backend="eager")
with torch.no_grad():
    for step in range(40):
        scores = score(torch.randn(8, 16))
print(f"{scores.sum().item():.4f}")
