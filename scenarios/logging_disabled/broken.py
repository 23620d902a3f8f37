"""A library switches off all logging with `logging.disable` before anything compiles.

torch recompiles once and says so nowhere in its log, and on some versions not in its trace
either. The log is the third source, not the first: torch's questions and its metrics agree on the
recompile, and its totals count no break and no eager frame, so nothing is missing.
"""

import logging

import torch

logging.disable(logging.CRITICAL)


@torch.compile(backend="eager", dynamic=False)
def double(values):
    return values * 2.0


for length in [4, 6]:
    print(f"{length}: {double(torch.ones(length)).sum().item():.1f}")
