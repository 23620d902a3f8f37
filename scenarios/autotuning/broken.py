"""Compile with max-autotune, on a GPU: many kernels are tried for each matrix product."""

import torch

torch.manual_seed(0)
weights = [torch.randn(512 * (1 + n % 3), 512, device="cuda") for n in range(6)]


@torch.compile(mode="max-autotune-no-cudagraphs")
def forward(x):
    return sum((x @ weight.T).relu().sum() for weight in weights)


with torch.no_grad():
    for step in range(3):
        print(f"step {step}: {forward(torch.ones(64, 512, device='cuda')).item():.1f}")
