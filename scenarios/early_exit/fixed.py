"""The rows that are left move to a smaller size: the same scores, fewer rows.

All sizes were compiled in the warm-up; moving rows compiles nothing.
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
    loop = fixed.until_done(queries, lambda state: state["left"] <= 0, STEPS)
print(f"{sum(loop.sizes)} rows in {loop.steps} steps, total score {loop.state['score'].sum():.1f}")
