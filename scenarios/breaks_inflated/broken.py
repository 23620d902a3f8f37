"""One debug print, in a function that recompiles twice.

torch reports the break again with every compilation of the frame: its counter says three. There
is one place to mend.
"""

import torch


@torch.compile(backend="eager")
def block(tokens, mode):
    hidden = tokens.tanh() if mode == "a" else tokens.sin() if mode == "b" else tokens.cos()
    print("block in mode", mode)
    return hidden * 2.0


torch.manual_seed(0)
for mode in ["a", "b", "c", "a", "b", "c"]:
    total = block(torch.randn(8), mode).sum().item()
    print(f"mode {mode}: {total:.4f}")
