"""Wall and CPU seconds of a step while whoever tells of the run is stopped in every second block.

Its parent is the one that tells. Both kinds of block are observed.
Arguments: OUT WIDTH PAIRS STEPS.
"""

import json
import os
import signal
import statistics
import sys
import time

import torch


def main(out: str, width: int, pairs: int, steps: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = (torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Linear(width, 1))
    model = torch.compile(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(64, width)

    def block() -> tuple[float, float]:
        walls: list[float] = []
        used = time.process_time()
        for _ in range(steps):
            began = time.perf_counter()
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            walls.append(time.perf_counter() - began)
        return statistics.median(walls), (time.process_time() - used) / steps

    def untold() -> tuple[float, float]:
        os.kill(os.getppid(), signal.SIGSTOP)
        try:
            return block()
        finally:
            os.kill(os.getppid(), signal.SIGCONT)

    found: list[tuple[tuple[float, float], tuple[float, float]]] = []
    for number in range(-2, pairs):  # two pairs to warm up
        if number % 2:
            told = block()
            found.append((untold(), told))
        else:
            found.append((untold(), block()))
    with open(out, "w") as file:
        pairs_of = [[(off[clock], on[clock]) for off, on in found[2:]] for clock in (0, 1)]
        json.dump({"wall": pairs_of[0], "CPU": pairs_of[1]}, file)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
