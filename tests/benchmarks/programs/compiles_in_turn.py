"""CPU seconds of compiling, children (the C++ compiler) included; every second block observed.

Each frame is compiled, then compiled again for another flag, with its backward, then run a few
times. Arguments: OUT BACKEND PAIRS FRAMES FOLDER.
"""

import resource
import sys
import time
from collections.abc import Callable

import torch
from compiles import compile_frame
from in_turn import measure


def cpu() -> float:
    """`os.times` counts hundredths of a second, a percent of a block of eager compiles."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def main(out: str, backend: str, pairs: int, frames: int, folder: str) -> None:
    torch.set_num_threads(1)
    measure(lambda: compiling(backend, frames), pairs, folder, out)


def compiling(backend: str, frames: int) -> Callable[[], float]:
    """A block of frames that are compiled, which tells its CPU seconds."""
    x = torch.randn(16, 16, requires_grad=True)
    made = iter(range(1_000_000))

    def block() -> float:
        began = cpu()
        for _ in range(frames):
            compile_frame(next(made), backend, x)
        return cpu() - began

    return block


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
