"""CPU seconds of a step while whoever draws the live view is stopped in every second block.

Run it under `compilediag run` with a live view: its parent is the one that draws. Both kinds of
block are observed. Arguments: OUT WIDTH PAIRS STEPS.
"""

import json
import os
import signal
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

    def block() -> float:
        began = time.process_time()
        for _ in range(steps):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
        return (time.process_time() - began) / steps

    def dark() -> float:
        os.kill(os.getppid(), signal.SIGSTOP)
        try:
            return block()
        finally:
            os.kill(os.getppid(), signal.SIGCONT)

    found: list[tuple[float, float]] = []
    for number in range(-2, pairs):  # two pairs to warm up
        if number % 2:
            seen = block()
            found.append((dark(), seen))
        else:
            found.append((dark(), block()))
    with open(out, "w") as file:
        json.dump(found[2:], file)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
