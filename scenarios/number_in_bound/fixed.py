"""The temperature is a tensor: its value is data, and nothing guards on it."""

import torch


@torch.compile(backend="aot_eager")
def squash(x, temperature):
    return torch.clamp(x, min=1.0 + temperature) * (1.0 + temperature)


for temperature in (0.9, 0.8, 0.7, 0.6):
    print(f"{squash(torch.linspace(0, 4, 5), torch.tensor(temperature)).sum():.3f}")
