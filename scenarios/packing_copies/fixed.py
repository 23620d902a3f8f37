"""Train a pooled scorer on sequences of different lengths, packed into one batch in every step.

One buffer serves all steps: each row is written, and only what follows it is zeroed.
"""

import torch
from torch import nn

BATCH, LENGTH, WIDTH = 18, 1024, 512

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Linear(WIDTH, 1)
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batch = torch.empty(BATCH, LENGTH, WIDTH)
sequences = [torch.randn(LENGTH - 8 * (row % 4), WIDTH) for row in range(BATCH)]


def pack(rows):
    for place, row in enumerate(rows):
        batch[place, : len(row)] = row
        batch[place, len(row) :] = 0.0


for step in range(12):
    pack(sequences)
    loss = compiled(batch.mean(dim=1)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.4f}")
