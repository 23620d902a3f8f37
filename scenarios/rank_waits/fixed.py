"""Two ranks train side by side; both score their weights once before the first step.

The score is compiled on both at the same time, and rank 0 scores its weights later at no cost. The
backend stands for one that takes its time.
"""

import os
import subprocess
import sys
import tempfile
import time

RANKS = 2


def train(rank):
    import torch
    from torch import distributed, nn

    def slow_backend(graph, inputs):
        time.sleep(6)
        return graph.forward

    @torch.compile(backend=slow_backend)
    def score(weight):
        return weight.square().mean()

    store = distributed.FileStore(sys.argv[1], RANKS)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    score(model.weight.detach())
    for step in range(6):
        compiled(torch.randn(16, 8)).square().mean().backward()
        if step == 3 and rank == 0:
            print(f"step {step}: score {score(model.weight.detach()).item():.4f}")
        for parameter in model.parameters():
            distributed.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
    distributed.destroy_process_group()


def start(rank, store):
    environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    return subprocess.Popen([sys.executable, __file__, store], env=environment)


if "RANK" in os.environ:
    train(int(os.environ["RANK"]))
else:
    with tempfile.TemporaryDirectory() as folder:
        ranks = [start(rank, os.path.join(folder, "store")) for rank in range(RANKS)]
        sys.exit(max(each.wait() for each in ranks))
