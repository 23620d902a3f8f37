"""24 forked children, of which six compile and three are killed, beside a compiling parent."""

import os
import signal

import torch


def scaled(x: torch.Tensor, factor: str) -> torch.Tensor:
    return x * 2 if factor == "double" else x + 1


compiled = torch.compile(scaled, backend="eager")
for word in ("double", "a", "b", "c"):
    compiled(torch.ones(4), word)
children = []
for index in range(24):
    child = os.fork()
    if child == 0:
        if index % 4 == 0:
            compiled(torch.ones(4), f"child {index}")
        if index % 8 == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)
    children.append(child)
killed = sum(os.WIFSIGNALED(os.waitpid(child, 0)[1]) for child in children)
print("killed", killed, flush=True)
