"""The same two starts, and a cleaning job that empties the whole cache or nothing.

What the second start finds, it finds in both caches.
"""

import os
import tempfile

import torch

folder = tempfile.mkdtemp()
os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder

torch.manual_seed(0)
weight = torch.randn(8, 8)


def project(rows):
    return rows @ weight


for start in range(2):
    model = torch.compile(project)
    print(f"start {start}: {model(torch.ones(4, 8)).sum().item():.3f}")
    torch.compiler.reset()
