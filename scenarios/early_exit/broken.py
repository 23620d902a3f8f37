"""Queries are proved step by step; most are done after a few steps, and all are computed to the end.

Rows that are done are held as they are, which is right, and costs as much as computing them.
"""

import torch

import compilediag as cd

QUERIES, STEPS = 64, 12


@torch.compile(backend="eager", dynamic=False)
def step(state):
    left = state["left"] - 1
    return {"left": left, "score": state["score"] + torch.where(left > 0, 0.5, 1.0)}


torch.manual_seed(0)
fixed = cd.FixedShape(step, dims={"state": 0}, buckets=[8, 16, 32, 64])
queries = {
    "left": torch.cat((torch.full((56,), 2), torch.full((8,), STEPS))),
    "score": torch.zeros(QUERIES),
}

with torch.no_grad():
    fixed.warmup(queries)
    loop = fixed.until_done(queries, lambda state: state["left"] <= 0, STEPS, compaction=False)
print(f"{sum(loop.sizes)} rows in {loop.steps} steps, total score {loop.state['score'].sum():.1f}")
