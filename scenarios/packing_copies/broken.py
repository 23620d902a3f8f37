"""Train a pooled scorer on sequences of different lengths, packed into one batch in every step.

The batch is new in every step and filled with zeros, and then nearly all of it is overwritten row
by row: memory is touched for the first time to hold zeros that nobody reads.
"""

import torch
from torch import nn

BATCH, LENGTH, WIDTH = 18, 1024, 512

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Linear(WIDTH, 1)
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sequences = [torch.randn(LENGTH - 8 * (row % 4), WIDTH) for row in range(BATCH)]


def pack(rows):
    batch = torch.zeros(len(rows), LENGTH, WIDTH)
    for place, row in enumerate(rows):
        batch[place, : len(row)] = row
    return batch


for step in range(12):
    batch = pack(sequences)
    loss = compiled(batch.mean(dim=1)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.4f}")
