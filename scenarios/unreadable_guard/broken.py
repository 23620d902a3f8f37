"""The filled part of a preallocated buffer is processed, and once a tensor of its own.

A slice is a view, and the graph for dynamic sizes also guards on the tensor behind the view. A
tensor of its own has none: torch prints "'NoneType' object has no attribute 'size'", which names
no cause. What cannot be determined is reported as it is, not guessed.
"""

import torch


@torch.compile(backend="eager", dynamic=True)
def smooth(rows):
    return (rows * 2.0).clamp(0.0, 1.0)


torch.manual_seed(0)
buffer = torch.rand(11, 5)
for step, rows in enumerate([buffer[:4], buffer[:6], torch.rand(7, 5)]):
    print(f"step {step}: {len(rows)} rows, {smooth(rows).mean().item():.4f}")
