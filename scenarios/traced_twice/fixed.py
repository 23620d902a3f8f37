"""Compute a table while torch traces, in a function without a graph break: it is traced once."""

import time

import torch


@torch.compiler.assume_constant_result
def table():
    time.sleep(6)  # a long computation of constants
    return torch.ones(4)


@torch.compile(backend="eager")
def forward(x):
    y = x * table()
    return y.sin()


for step in range(3):
    print(f"step {step}: {forward(torch.ones(4)).sum().item():.4f}")
