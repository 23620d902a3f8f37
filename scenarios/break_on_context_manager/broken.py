"""A shared cache is protected by a lock inside the compiled function.

Dynamo knows no `threading.Lock`, and it cannot end a graph inside the `with` block either. The
function runs eager as a whole.
"""

import threading

import torch

LOCK = threading.Lock()
cache = torch.zeros(4)


@torch.compile(backend="eager")
def update(values):
    with LOCK:
        return cache + values.tanh()


@torch.compile(backend="eager")
def head(values):
    return values.softmax(dim=-1)


torch.manual_seed(0)
for step in range(3):
    print(f"step {step}: {head(update(torch.randn(4))).max().item():.4f}")
