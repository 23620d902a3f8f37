"""A compiled training loop that measures its own CPU seconds per step: OUT WIDTH STEPS."""

import json
import statistics
import sys
import time

import torch

BLOCK = 50
WARMUP_BLOCKS = 2


def main(out: str, width: int, steps: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = (torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Linear(width, 1))
    model = torch.compile(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(64, width)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    blocks = []
    for _ in range(WARMUP_BLOCKS + steps // BLOCK):
        began = time.process_time()
        for _ in range(BLOCK):
            step()
        blocks.append((time.process_time() - began) / BLOCK)
    with open(out, "w") as file:
        json.dump(statistics.median(blocks[WARMUP_BLOCKS:]), file)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
