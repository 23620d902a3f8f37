"""The fingerprint is computed outside, once, and handed in as a number.

The compiled function holds tensor work only.
"""

import zlib

import torch


@torch.compile(backend="eager")
def encode(tokens, offset):
    hidden = tokens * 2.0
    return hidden + offset


torch.manual_seed(0)
offset = zlib.crc32(b"encoder") % 7
for step in range(3):
    print(f"step {step}: {encode(torch.ones(4), offset).sum().item():.1f}")
