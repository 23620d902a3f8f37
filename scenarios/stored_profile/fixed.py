"""No job id, and the length is declared dynamic where it is known to be.

Both trials start from the code alone, and both compile exactly once.
"""

import os

os.environ["TORCH_DYNAMO_AUTOMATIC_DYNAMIC_LOCAL_PGO"] = "0"

import torch


@torch.compile(backend="eager")
def double(values):
    return values * 2.0


for trial in range(2):
    torch._dynamo.reset()
    for length in [4, 6, 8]:
        values = torch.ones(length)
        torch._dynamo.mark_dynamic(values, 0)
        print(f"trial {trial}: length {length}, {double(values).sum().item():.1f}")
