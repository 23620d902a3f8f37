"""A rank: three recompiles, a barrier after each; rank CHAOS_RANK kills itself at CHAOS_CALL."""

import os
import signal

import torch
import torch.distributed as dist

dist.init_process_group("gloo")


def scaled(x: torch.Tensor, factor: str) -> torch.Tensor:
    return x * 2 if factor == "double" else x + 1


compiled = torch.compile(scaled, backend="eager")
for number, word in enumerate(("double", "a", "b", "c")):
    if dist.get_rank() == int(os.environ["CHAOS_RANK"]) and number == int(os.environ["CHAOS_CALL"]):
        os.kill(os.getpid(), signal.SIGKILL)
    compiled(torch.ones(4), word)
    dist.barrier()
dist.destroy_process_group()
