"""Both flags are tensors: one graph computes every combination, and is told by values."""

import torch


def make_layer():
    probed, scaled = torch.zeros(()), torch.zeros(())

    @torch.compile(backend="eager")
    def forward(x):
        x = x * torch.where(scaled > 0, 0.5, 1.0)
        y = x * 2.0
        return y + y.mean() * probed

    def switch(probe, scale):
        probed.fill_(float(probe))
        scaled.fill_(float(scale))

    return forward, switch


forward, switch = make_layer()
batch = torch.ones(4)
for step in range(8):
    switch(probe=step in (2, 5, 6), scale=step in (3, 5, 7))
    print(step, forward(batch).sum().item())
