"""As many sizes, chosen for the batches that come: the same scores, hardly any padding."""

import torch

import compilediag as cd

torch.manual_seed(0)
weights = torch.randn(8)
batches = [torch.randn(rows, 8) for rows in (70, 24, 81, 66, 30, 90, 75, 88, 68, 20) * 4]


@torch.compile(backend="eager", dynamic=False)
def score_of(rows):
    return (rows * weights).relu().sum(1)


score = cd.FixedShape(score_of, dims={"rows": 0}, buckets="auto")
score.observe(map(len, batches))
score.fit(2, multiple=8)

with torch.no_grad():
    score.warmup(batches[0])
    total = sum(score(batch).sum() for batch in batches)
print(f"{sum(map(len, batches))} rows, total score {total:.2f}")
