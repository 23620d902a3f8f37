"""The filled part of a preallocated buffer is processed, and once that of a strided one.

A slice is a view, and the graph for dynamic sizes also guards on the tensor behind the view. That
of the strided one has fewer dimensions: torch prints "tuple index out of range", which names no
cause. What cannot be determined is reported as it is, not guessed.
"""

import torch


@torch.compile(backend="eager", dynamic=True)
def smooth(rows):
    return (rows * 2.0).clamp(0.0, 1.0)


torch.manual_seed(0)
buffer = torch.rand(11, 5)
firsts = torch.empty_strided((11,), (5,))  # the first number of each row
strided = firsts.as_strided((7, 5), (5, 1)).copy_(torch.rand(7, 5))
for step, rows in enumerate([buffer[:4], buffer[:6], strided]):
    print(f"step {step}: {len(rows)} rows, {smooth(rows).mean().item():.4f}")
