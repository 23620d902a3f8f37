"""A layer is probed in some steps and scaled in others, each by a flag of its own.

Each flag recompiles when it is first set. The first step in which both are set recompiles once
more, although each flag has a value by then that was compiled for: their combination is new.
"""

import torch


def make_layer():
    probed = scaled = False

    def switch(probe, scale):
        nonlocal probed, scaled
        probed, scaled = probe, scale

    @torch.compile(backend="eager")
    def forward(x):
        if scaled:
            x = x * 0.5
        y = x * 2.0
        if probed:
            y = y + y.mean()
        return y

    return forward, switch


forward, switch = make_layer()
batch = torch.ones(4)
for step in range(8):
    switch(probe=step in (2, 5, 6), scale=step in (3, 5, 7))
    print(step, forward(batch).sum().item())
