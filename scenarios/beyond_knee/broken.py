"""A scorer runs at two sizes, the larger of which was never worth it.

It was measured: a row takes many times as long at 4096 rows as at 256, because the weights of the
rows become a matrix with a side of as many rows. The large size is used all the same.
"""

import torch

import compilediag as cd

torch.manual_seed(0)
torch.set_num_threads(1)
batches = [torch.rand(rows, 8) for rows in (200, 3000, 100, 4000, 2500)]


@torch.compile(backend="eager", dynamic=False)
def score_of(rows):
    return (torch.diag(rows[:, 0]) @ rows).sum(1)


score = cd.FixedShape(score_of, dims={"rows": 0}, buckets=[256, 4096])

with torch.no_grad():
    score.warmup(batches[0])
    score.knee(batches[0])
    total = sum(score(batch).sum() for batch in batches)
print(f"{sum(map(len, batches))} rows, total score {total:.1f}")
