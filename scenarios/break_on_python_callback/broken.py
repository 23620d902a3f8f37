"""A rounding rule is applied to a tensor element by element with `Tensor.apply_`.

The call takes a Python function as an argument of a tensor operation, which has no place in a
graph. torch reports that it could not convert an argument; that fits no category of its own.
"""

import torch


def half_up(value):
    return int(value + 0.5)


@torch.compile(backend="eager")
def quantise(values):
    scaled = values * 4.0
    scaled = scaled.apply_(half_up)
    return scaled / 4.0


torch.manual_seed(0)
for step in range(3):
    print(f"step {step}: {quantise(torch.rand(8)).sum().item():.2f}")
