"""The shares of candidates are a softmax over all rows of a batch, padding among them.

Padded to a fixed size, every share is smaller than it should be, and nothing fails. The warm-up
would refuse it; it was told to go on.
"""

import torch

import compilediag as cd

torch.manual_seed(0)
weights = torch.randn(8)
batches = [torch.randn(rows, 8) for rows in (5, 12, 9, 16, 3)]


@torch.compile(backend="eager", dynamic=False)
def shares_of(candidates):
    return (candidates @ weights).softmax(0)


shares = cd.FixedShape(shares_of, dims={"candidates": 0}, buckets=[8, 16])

with torch.no_grad():
    shares.warmup(batches[0], unsafe="allow")
    print("sums of shares:", ", ".join(f"{shares(batch).sum():.3f}" for batch in batches))
