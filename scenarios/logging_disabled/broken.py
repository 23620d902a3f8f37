"""A library switches off all logging with `logging.disable` before anything compiles.

torch recompiles once and says so nowhere in its log, and on some versions not in its trace
either. What is known comes from the sources that still speak; that others fell silent makes the
verdict blind.
"""

import logging

import torch

logging.disable(logging.CRITICAL)


@torch.compile(backend="eager", dynamic=False)
def double(values):
    return values * 2.0


for length in [4, 6]:
    print(f"{length}: {double(torch.ones(length)).sum().item():.1f}")
