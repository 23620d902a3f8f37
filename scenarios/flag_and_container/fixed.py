"""The probe copies its value into a preallocated buffer at every step; who is armed reads it outside."""

import torch


def make_probe():
    mean = torch.zeros(4)

    @torch.compile(backend="eager")
    def forward(x):
        y = x * 2.0
        mean.copy_(y)
        return y

    return forward, mean


forward, mean = make_probe()
batch = torch.ones(4)
seen = {}
for step in range(6):
    y = forward(batch)
    if step in (2, 4):
        y = y if seen else y + 1.0
        seen["mean"] = mean.clone()
    print(step, y.sum().item())
