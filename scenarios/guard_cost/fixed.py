"""Score batches with a model that adds its eight thousand numbers up once, when it is made.

One number is compared before every call.
"""

import torch
from torch import nn


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 4)
        self.total = sum(number % 7 for number in range(8000))

    def forward(self, batch):
        return self.linear(batch) / self.total


torch.manual_seed(0)
score = torch.compile(Scorer(), backend="eager")
with torch.no_grad():
    for step in range(40):
        scores = score(torch.randn(8, 16))
print(f"{scores.sum().item():.4f}")
