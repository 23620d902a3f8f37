"""The block inside an activation checkpoint appends to a list outside.

A checkpoint is a higher-order operator of the graph, and its body must not have side effects:
it will be run a second time in backward. Dynamo refuses it and leaves the graph.
"""

import torch
from torch.utils.checkpoint import checkpoint

seen_shapes = []


def block(tokens):
    seen_shapes.append(tokens.shape)
    return tokens.tanh().sin()


@torch.compile(backend="eager")
def forward(tokens):
    hidden = tokens * 2.0
    hidden = checkpoint(block, hidden, use_reentrant=False)
    return hidden + 1.0


torch.manual_seed(0)
for step in range(2):
    tokens = torch.randn(8, requires_grad=True)
    forward(tokens).sum().backward()
    print(f"step {step}: {tokens.grad.norm().item():.4f}")
