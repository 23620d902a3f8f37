"""The mean of the positive elements: how many there are is known only when the code runs.

Selecting by a mask breaks the graph, and the code behind the break is compiled again for another
number of elements. Marking that number dynamic ends the recompile and leaves the break.
"""

import torch


@torch.compile(backend="eager")
def positive_mean(x):
    kept = x[x > 0]
    return kept.mean() + x.std()


torch.manual_seed(0)
for step in range(4):
    print(f"step {step}: {positive_mean(torch.randn(64)).item():.4f}")
