"""Only the size that pays: larger batches are split into calls of 256 rows. The same scores."""

import torch

import compilediag as cd

torch.manual_seed(0)
torch.set_num_threads(1)
batches = [torch.rand(rows, 8) for rows in (200, 3000, 100, 4000, 2500)]


@torch.compile(backend="eager", dynamic=False)
def score_of(rows):
    return (torch.diag(rows[:, 0]) @ rows).sum(1)


score = cd.FixedShape(score_of, dims={"rows": 0}, buckets=[256])

with torch.no_grad():
    score.warmup(batches[0])
    score.knee(batches[0])
    total = sum(score(batch).sum() for batch in batches)
print(f"{sum(map(len, batches))} rows, total score {total:.1f}")
