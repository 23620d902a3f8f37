"""The cache folder of a job is one that nothing can be written to.

An image was built with the cache of another torch packed into files of the names that torch wants
for its folders. torch only warns: it compiles, throws the result away, and does so at every start.
"""

import os
import tempfile

import torch

folder = os.path.join(tempfile.mkdtemp(), "cache")
os.makedirs(folder)
for name in ("fxgraph", "aotautograd"):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write("packed")
os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder

torch.manual_seed(0)
weight = torch.randn(8, 8)


@torch.compile
def project(rows):
    return rows @ weight


for step in range(3):
    print(f"step {step}: {project(torch.ones(4, 8)).sum().item():.3f}")
