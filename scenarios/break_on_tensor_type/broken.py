"""An adjacency matrix is passed into the compiled layer as a sparse tensor.

Dynamo does not trace sparse inputs: the graph convolution runs eager, and only the head is
compiled.
"""

import torch


@torch.compile(backend="eager")
def convolve(adjacency, nodes):
    return torch.mm(adjacency, nodes).relu()


@torch.compile(backend="eager")
def head(nodes):
    return nodes.softmax(dim=-1)


torch.manual_seed(0)
adjacency = torch.eye(6).to_sparse()
for step in range(3):
    print(f"step {step}: {head(convolve(adjacency, torch.randn(6, 4))).sum().item():.4f}")
