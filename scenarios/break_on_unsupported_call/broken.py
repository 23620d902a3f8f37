"""A debug fingerprint is computed with `zlib.crc32` in the middle of the compiled function.

It is a C function of the standard library that Dynamo cannot trace: the graph ends before the
call and another begins after it.
"""

import zlib

import torch


@torch.compile(backend="eager")
def encode(tokens, name):
    hidden = tokens * 2.0
    fingerprint = zlib.crc32(name)
    return hidden + fingerprint % 7


torch.manual_seed(0)
for step in range(3):
    print(f"step {step}: {encode(torch.ones(4), b'encoder').sum().item():.1f}")
