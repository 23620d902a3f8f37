"""Print the shapes after the call: one function is one graph."""

import torch

torch.manual_seed(0)
weights = [torch.randn(16, 16) / 4 for _ in range(5)]


def show(x):
    print("shape", tuple(x.shape))


@torch.compile(backend="eager")
def forward(x):
    between = []
    for weight in weights[:4]:
        x = torch.relu(x @ weight)
        between.append(x)
    return x @ weights[4], between


for step in range(2):
    result, between = forward(torch.ones(2, 16))
    for x in between:
        show(x)
    print(f"step {step}: {result.sum().item():.4f}")
