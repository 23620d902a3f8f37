"""The process is killed from outside, as an out-of-memory killer does it, after a recompile.

SIGKILL leaves no time to say goodbye. Whatever was seen up to then is in the journal and so in
the receipt, and its status says that the run did not end by itself.
"""

import os
import signal

import torch


@torch.compile(backend="eager", dynamic=False)
def double(values):
    return values * 2.0


for step, length in enumerate([4, 6, 6, 6]):
    print(f"step {step}: {double(torch.ones(length)).sum().item():.1f}", flush=True)
    if step == 2:
        os.kill(os.getpid(), signal.SIGKILL)
