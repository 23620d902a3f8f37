"""The print is outside and the mode is resolved outside: one graph, no break."""

import torch

FUNCTIONS = {"a": torch.tanh, "b": torch.sin, "c": torch.cos}


@torch.compile(backend="eager")
def double(hidden):
    return hidden * 2.0


torch.manual_seed(0)
for mode in ["a", "b", "c", "a", "b", "c"]:
    print("block in mode", mode)
    total = double(FUNCTIONS[mode](torch.randn(8))).sum().item()
    print(f"mode {mode}: {total:.4f}")
