"""The adjacency matrix is made dense at the boundary of the compiled region.

For a small graph that is cheap; for a large one, leave the sparse product outside and compile
what surrounds it.
"""

import torch


@torch.compile(backend="eager")
def convolve(adjacency, nodes):
    return torch.mm(adjacency, nodes).relu()


@torch.compile(backend="eager")
def head(nodes):
    return nodes.softmax(dim=-1)


torch.manual_seed(0)
adjacency = torch.eye(6).to_sparse().to_dense()
for step in range(3):
    print(f"step {step}: {head(convolve(adjacency, torch.randn(6, 4))).sum().item():.4f}")
