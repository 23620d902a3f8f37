"""Compile with the kernels that torch takes without trying others."""

import torch

torch.manual_seed(0)
weights = [torch.randn(512 * (1 + n % 3), 512, device="cuda") for n in range(6)]


@torch.compile
def forward(x):
    return sum((x @ weight.T).relu().sum() for weight in weights)


with torch.no_grad():
    for step in range(3):
        print(f"step {step}: {forward(torch.ones(64, 512, device='cuda')).item():.1f}")
