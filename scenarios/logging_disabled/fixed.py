"""Only the library's own logger is switched off; torch keeps its voice."""

import logging

import torch

logging.getLogger("noisy.library").setLevel(logging.CRITICAL)


@torch.compile(backend="eager", dynamic=True)
def double(values):
    return values * 2.0


for length in [4, 6]:
    print(f"{length}: {double(torch.ones(length)).sum().item():.1f}")
