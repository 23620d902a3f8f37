"""Compiles many frames and tells the CPU seconds of the process and its children: OUT BACKEND N.

Every frame is compiled, then compiled again for another flag, then run a few times.
"""

import json
import os
import sys

import torch

SOURCE = """
def frame(x, flag):
    y = torch.sin(x) * {number} + x @ x
    y = torch.relu(y - {number}) if flag else torch.tanh(y + {number})
    return (y.softmax(-1) * x).sum()
"""


def main(out: str, backend: str, frames: int) -> None:
    torch.set_num_threads(1)
    x = torch.randn(16, 16, requires_grad=True)
    for number in range(frames):
        scope = {"torch": torch}
        exec(compile(SOURCE.format(number=number), f"<frame {number}>", "exec"), scope)
        compiled = torch.compile(scope["frame"], backend=backend)
        for flag in (True, False, True, False):
            compiled(x, flag).backward()
    used = os.times()
    with open(out, "w") as file:
        json.dump(used.user + used.system + used.children_user + used.children_system, file)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
