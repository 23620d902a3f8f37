"""The same program runs to its end, with one size."""

import torch


@torch.compile(backend="eager", dynamic=False)
def double(values):
    return values * 2.0


for step, length in enumerate([6, 6, 6, 6]):
    print(f"step {step}: {double(torch.ones(length)).sum().item():.1f}", flush=True)
