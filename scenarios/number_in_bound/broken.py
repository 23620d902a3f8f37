"""A temperature that falls at every step is used in the bound of a clamp.

torch makes the number symbolic after its first change, and takes it for a constant again where it
cannot be one: behind AOTAutograd the graph is guarded on `1.0 + temperature == 1.9`, and every
further value compiles again.
"""

import torch


@torch.compile(backend="aot_eager")
def squash(x, temperature):
    return torch.clamp(x, min=1.0 + temperature) * (1.0 + temperature)


for temperature in (0.9, 0.8, 0.7, 0.6):
    print(f"{squash(torch.linspace(0, 4, 5), temperature).sum():.3f}")
