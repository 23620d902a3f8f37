"""The operator tells the shape of its result with `register_fake`, and stays in the graph."""

import torch


def soft_threshold(values, limit):
    return values.sign() * (values.abs() - limit).clamp(min=0.0)


torch.library.define("scenario::soft_threshold", "(Tensor values, float limit) -> Tensor")
torch.library.impl("scenario::soft_threshold", "cpu", soft_threshold)


@torch.library.register_fake("scenario::soft_threshold")
def _(values, limit):
    return torch.empty_like(values)


@torch.compile(backend="eager")
def shrink(values):
    doubled = values * 2.0
    sparse = torch.ops.scenario.soft_threshold(doubled, 0.5)
    return sparse + 1.0


torch.manual_seed(0)
for step in range(3):
    print(f"step {step}: {shrink(torch.randn(8)).sum().item():.4f}")
