"""A cleaning job empties one folder of the cache, and leaves the other.

AOTAutograd's entries name the graphs of inductor that belong to them. Without those graphs the
entries are found and useless: everything is compiled again. Here one process does what are two
starts of a job.
"""

import os
import shutil
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
    shutil.rmtree(os.path.join(folder, "fxgraph"))
