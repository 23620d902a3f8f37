"""A job id is set, so torch stores which sizes turned out dynamic and starts the next trial there.

The first trial recompiles once for a new length. The second starts from a clean Dynamo and does
not: the stored profile told it. Its count is better than the code deserves, and comparing the two
compares different things.
"""

import os
import tempfile

cache = tempfile.TemporaryDirectory()
os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache.name
os.environ["TORCH_COMPILE_JOB_ID"] = "nightly"

import torch


@torch.compile(backend="eager")
def double(values):
    return values * 2.0


for trial in range(2):
    torch._dynamo.reset()
    for length in [4, 6, 8]:
        print(f"trial {trial}: length {length}, {double(torch.ones(length)).sum().item():.1f}")
