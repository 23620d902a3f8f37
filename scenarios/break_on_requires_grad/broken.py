"""Saliency is computed by switching gradients on for a tensor in the middle of the function.

`requires_grad_()` changes autograd's state while Dynamo traces, which it does not model: the
graph ends there.
"""

import torch


@torch.compile(backend="eager")
def embed(pixels):
    features = pixels * 0.5
    features.requires_grad_()
    return features.tanh().sum(), features


torch.manual_seed(0)
for step in range(3):
    score, features = embed(torch.randn(8))
    score.backward()
    print(f"step {step}: saliency {features.grad.abs().sum().item():.4f}")
