"""CPU seconds of a step of a compiled training loop, observed in every second block of steps.

Arguments: OUT WIDTH PAIRS STEPS FOLDER.
"""

import sys
import time
from collections.abc import Callable

import torch
from in_turn import measure

FIRST_STEPS = 300


def main(out: str, width: int, pairs: int, steps: int, folder: str) -> None:
    torch.set_num_threads(1)
    measure(lambda: training(width, steps), pairs, folder, out)


def training(width: int, steps: int) -> Callable[[], float]:
    """A block of steps of a training loop, which tells its CPU seconds a step."""
    torch.manual_seed(0)
    layers = (torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Linear(width, 1))
    model = torch.compile(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(64, width)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    def block() -> float:
        for _ in range(FIRST_STEPS):  # more is looked at in the first steps than in all others
            step()
        began = time.process_time()
        for _ in range(steps):
            step()
        return (time.process_time() - began) / steps

    return block


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
