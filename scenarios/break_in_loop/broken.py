"""Positions are read out of a tensor one by one with `.item()`, in a loop.

A break elsewhere splits a function in two graphs. A break inside a `for` loop cannot be resumed:
Dynamo gives the whole function up, and all of it runs eager for the rest of the run.
"""

import torch


@torch.compile(backend="eager")
def gather(table, positions):
    total = torch.zeros(4)
    for position in positions:
        total = total + table[position.item()].tanh()
    return total


@torch.compile(backend="eager")
def head(values):
    return values.softmax(dim=-1)


torch.manual_seed(0)
table = torch.randn(8, 4)
for step in range(3):
    gathered = gather(table, torch.tensor([1, 4, 6]))
    print(f"step {step}: {head(gathered).max().item():.4f}")
