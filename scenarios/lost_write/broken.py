"""A running minimum in a 0-dim float64 buffer, written in place: its graph never writes it.

torch 2.13 reads such a tensor as a number, traces the function again without that, and takes out
of the graph what nothing uses, the write too. No error, no warning: the buffer stays as it was.
"""

import torch
from torch import nn


class Tracker(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("lowest", torch.tensor(9.0, dtype=torch.float64))

    def forward(self, losses):
        self.lowest.copy_(torch.minimum(self.lowest, losses.min().double()))
        return losses - self.lowest.float()


torch.manual_seed(0)
tracker = Tracker()
compiled = torch.compile(tracker, backend="aot_eager")
for step in range(4):
    out = compiled(torch.rand(8) + 4 - step)
    print(f"step {step}: lowest {tracker.lowest.item():.4f}, mean above it {out.mean().item():.4f}")
