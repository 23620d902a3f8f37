"""CPU seconds of a step of a compiled training loop, observed in every second block of steps.

Brief steps are watched in turn. A block measures some that are only noted, and then the end of
such a stretch with the watched steps that follow: the mean of a whole period of both is told.
Arguments: OUT LAYERS PAIRS STEPS FOLDER.
"""

import sys
import time
from collections.abc import Callable

import torch
from in_turn import measure

from compilediag_harness.steps import step_clock
from compilediag_harness.steps import steps as hooks

FIRST_STEPS = 24
WINDOW = step_clock.SAMPLED_STEPS + 2
"""The step that ends a stretch, the watched ones, and one more."""
WIDTH = 448
"""Small enough for the weights of a layer to stay in a cache: a longer step has more layers."""


def main(out: str, layers: int, pairs: int, steps: int, folder: str) -> None:
    torch.set_num_threads(1)
    # So many steps, not hundreds, until brief ones are noted: what follows them is the same.
    step_clock.FIRST_STEPS, step_clock.RETRY_STEPS = FIRST_STEPS // 2, FIRST_STEPS // 4
    measure(lambda: training(layers, steps), pairs, folder, out)


def training(layers: int, steps: int) -> Callable[[], float]:
    """A block of steps of a training loop, which tells its CPU seconds a step."""
    torch.manual_seed(0)
    hidden = [
        each for _ in range(layers) for each in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU())
    ]
    model = torch.compile(torch.nn.Sequential(*hidden, torch.nn.Linear(WIDTH, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(64, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    def timed(count: int) -> float:
        began = time.process_time()
        for _ in range(count):
            step()
        return time.process_time() - began

    def block() -> float:
        for _ in range(FIRST_STEPS):  # more is looked at in the first steps than in all others
            step()
        observed = bool(hooks._active)
        for _ in range(10 * FIRST_STEPS):  # a compile in the first block is followed by more
            if not observed or hooks._unsampled is not None:
                break
            step()
        else:
            raise RuntimeError("what would be measured are not noted steps")
        if observed:
            hooks._unsampled._until = float("inf")
        noted = timed(steps) / steps
        if observed:
            hooks._unsampled._until = 0.0  # the stretch ends with the next step
        around = timed(WINDOW)
        period = step_clock.UNSAMPLED_S / noted + step_clock.SAMPLED_STEPS
        return noted + (around - WINDOW * noted) / period

    return block


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
