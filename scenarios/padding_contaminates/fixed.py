"""The function is told which rows are real, and gives the others no share."""

import torch

import compilediag as cd

torch.manual_seed(0)
weights = torch.randn(8)
batches = [torch.randn(rows, 8) for rows in (5, 12, 9, 16, 3)]


@torch.compile(backend="eager", dynamic=False)
def shares_of(candidates, real):
    return (candidates @ weights).where(real, -torch.inf).softmax(0)


shares = cd.FixedShape(shares_of, dims={"candidates": 0}, buckets=[8, 16], mask="real")

with torch.no_grad():
    shares.warmup(batches[0])
    print("sums of shares:", ", ".join(f"{shares(batch).sum():.3f}" for batch in batches))
