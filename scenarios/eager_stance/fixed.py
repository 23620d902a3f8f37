"""Batches are padded to the size that was warmed up, and a call that still does not fit would raise and name its guard."""

import torch


@torch.compile(backend="eager", dynamic=False)
def score(batch):
    return (batch * 2.0).sum()


pad = torch.zeros(8, 4)
score(pad)
torch.compiler.set_stance("fail_on_recompile")
for rows in (8, 8, 5, 8, 5):
    batch = pad.clone()
    batch[:rows] = 1.0
    print(rows, score(batch).item())
