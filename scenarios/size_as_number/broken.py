"""Batches of several sizes, and two lines that need the size as a number.

A Python loop over the rows is unrolled, so each number of rows is a graph of its own, although the
size was declared dynamic. A branch on one special size splits the other function in two.
"""

import torch


def peak(rows):
    highest = rows[0]
    for row in range(rows.size(0)):  # unrolled
        highest = torch.maximum(highest, rows[row])
    return highest


def scale(rows):
    if rows.size(0) == 6:  # the size of a full batch
        return rows * 0.5
    return rows * 0.25


@torch.compile(backend="eager", dynamic=True)
def highest(rows):
    return peak(rows).sum()


@torch.compile(backend="eager", dynamic=True)
def scaled(rows):
    return scale(rows).sum()


torch.manual_seed(0)
for number in [3, 5, 6, 4]:
    rows = torch.randn(number, 8)
    print(f"{number} rows: {highest(rows).item():.4f} {scaled(rows).item():.4f}")
