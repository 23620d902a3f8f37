"""A probe adds a second hook to a layer that already had one.

The layer's hooks were traced into the graph together with a guard on how many there are. Adding
one while training runs compiles the model again.
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
norms = torch.zeros(())
peaks = torch.zeros(())


def record_norm(module, inputs, output):
    norms.copy_(output.detach().norm())


def record_peak(module, inputs, output):
    peaks.copy_(output.detach().max())


model[0].register_forward_hook(record_norm)
compiled = torch.compile(model, backend="eager")

for step in range(4):
    if step == 2:
        model[0].register_forward_hook(record_peak)
    out = compiled(torch.randn(4, 8))
    print(f"step {step}: {out.sum().item():.4f}, norm {norms.item():.4f}, peak {peaks.item():.4f}")
