"""A probe is armed for some steps, and collects what it saw in a dict that is empty at first.

The first armed step recompiles for the flag. The second one finds the flag as it was compiled for,
and the dict filled: that is new, and the only reason. The entry that was compiled before anything
was armed is no farther away, since it reads no dict at all; its flag is known by now.
"""

import torch


def make_probe():
    armed = False
    seen = {}

    def arm(on):
        nonlocal armed
        armed = on

    @torch.compile(backend="eager")
    def forward(x):
        y = x * 2.0
        if armed:
            if not seen:
                y = y + 1.0
            seen["mean"] = y
        return y

    return forward, arm


forward, arm = make_probe()
batch = torch.ones(4)
for step in range(6):
    arm(step in (2, 4))
    print(step, forward(batch).sum().item())
