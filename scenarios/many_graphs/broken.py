"""Print the shape after every layer: one function becomes five graphs, with four returns to Python
in each call, and nothing is fused across them.
"""

import torch

torch.manual_seed(0)
weights = [torch.randn(16, 16) / 4 for _ in range(5)]


def show(x):
    print("shape", tuple(x.shape))


@torch.compile(backend="eager")
def forward(x):
    x = torch.relu(x @ weights[0])
    show(x)
    x = torch.relu(x @ weights[1])
    show(x)
    x = torch.relu(x @ weights[2])
    show(x)
    x = torch.relu(x @ weights[3])
    show(x)
    return x @ weights[4]


for step in range(2):
    print(f"step {step}: {forward(torch.ones(2, 16)).sum().item():.4f}")
