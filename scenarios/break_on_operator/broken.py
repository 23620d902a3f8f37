"""A custom operator has a kernel but no fake implementation.

Dynamo cannot learn the shape of its result without running it, so it ends the graph and calls
the operator from Python.
"""

import torch


def soft_threshold(values, limit):
    return values.sign() * (values.abs() - limit).clamp(min=0.0)


torch.library.define("scenario::soft_threshold", "(Tensor values, float limit) -> Tensor")
torch.library.impl("scenario::soft_threshold", "cpu", soft_threshold)


@torch.compile(backend="eager")
def shrink(values):
    doubled = values * 2.0
    sparse = torch.ops.scenario.soft_threshold(doubled, 0.5)
    return sparse + 1.0


torch.manual_seed(0)
for step in range(3):
    print(f"step {step}: {shrink(torch.randn(8)).sum().item():.4f}")
