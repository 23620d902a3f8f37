"""The batch dimension is declared dynamic before the first call.

`mark_dynamic` tells Dynamo what the data loader knows already: the number of rows varies. One
graph then serves every batch, the short one included.
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
    torch._dynamo.mark_dynamic(batch, 0)
    classes = evaluate(batch)
    print(f"batch {number}: {len(batch)} rows, {int(classes.sum())} of class 1")
