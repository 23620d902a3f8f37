"""A small helper is marked with `torch.compiler.disable`, and it is called in a loop.

The decorator is a graph break on purpose. In straight code it splits a function; inside a `for`
loop Dynamo cannot resume after it and gives the whole function up. The intention was to keep one
line out of the graph, the effect is that nothing is in one.
"""

import torch


@torch.compiler.disable
def clamp_history(total):
    return total.clamp(-2.0, 2.0)


@torch.compile(backend="eager")
def accumulate(rows):
    total = torch.zeros(4)
    for row in rows:
        total = clamp_history(total + row.tanh())
    return total


@torch.compile(backend="eager")
def head(values):
    return values.softmax(dim=-1)


torch.manual_seed(0)
for step in range(3):
    print(f"step {step}: {head(accumulate(torch.randn(3, 4))).max().item():.4f}")
