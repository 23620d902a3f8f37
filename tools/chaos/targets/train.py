"""Three recompiles known by construction, then a result on stdout: what most campaigns disturb."""

import time

import torch


def scaled(x: torch.Tensor, factor: object) -> torch.Tensor:
    return x * 2 if factor == "double" else x + 1


compiled = torch.compile(scaled, backend="eager")
total = 0.0
for word in ("double", "a", "b", "c"):
    total += float(compiled(torch.ones(4), word).sum())
    time.sleep(0.05)
print("total", total, flush=True)
