"""The last batch of an epoch is smaller than the others.

The first batches compile for exactly 16 rows. The short batch makes Dynamo compile again, this
time with a dynamic first dimension: one recompile in the middle of the run, for one batch.
"""

import torch
from torch import nn

torch.manual_seed(0)
samples = torch.randn(54, 8)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))


@torch.compile(backend="eager")
def evaluate(batch):
    return model(batch).argmax(dim=-1)


for number, batch in enumerate(samples.split(16)):
    classes = evaluate(batch)
    print(f"batch {number}: {len(batch)} rows, {int(classes.sum())} of class 1")
