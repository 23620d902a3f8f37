"""A rotary embedding caches its angles and remembers for how many positions.

The cache is a preallocated buffer, so no tensor changes its shape. What changes is the companion
integer beside it, from 0 to the length of the first sequence. torch reports an int attribute;
the cause is the lazily filled cache.
"""

import torch
from torch import nn


class RotaryEmbedding(nn.Module):
    def __init__(self, width, longest=64):
        super().__init__()
        self.register_buffer("inverse", 1.0 / 100.0 ** (torch.arange(0, width, 2) / width))
        self.register_buffer("cached_angles", torch.zeros(longest, width // 2), persistent=False)
        self.cached_length = 0

    def angles(self, length):
        if self.cached_length >= length:
            return self.cached_angles[:length]
        fresh = torch.outer(torch.arange(length).float(), self.inverse)
        self.cached_angles[:length] = fresh
        self.cached_length = length
        return fresh

    def forward(self, queries):
        angles = self.angles(queries.shape[-2])
        even, odd = queries.chunk(2, dim=-1)
        return torch.cat(
            [even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()], -1
        )


torch.manual_seed(0)
rotary = RotaryEmbedding(16)
compiled = torch.compile(rotary, backend="eager")

for step in range(4):
    out = compiled(torch.randn(2, 10, 16))
    print(f"step {step}: {out.norm().item():.4f}, {rotary.cached_length} positions cached")
