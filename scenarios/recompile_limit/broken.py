"""A decoder is called with its position as a plain int, and dynamic shapes are switched off.

Twelve positions ask for twelve graphs. torch keeps eight per function: it compiles once and
recompiles seven times, prints one warning, and runs everything after that eager. An eighth
"Recompiling" message belongs to the attempt that was refused; it compiled nothing.
"""

import torch


@torch.compile(backend="eager", dynamic=False)
def decode(tokens, position):
    return tokens * (position + 1)


torch.manual_seed(0)
for position in range(12):
    print(f"position {position}: {decode(torch.ones(4), position).sum().item():.1f}")
