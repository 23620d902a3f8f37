"""The batch size is declared dynamic, but the code can only work for one.

A reshape with the number 4 in it pins the dimension, in a helper of the compiled function. torch
refuses to compile a size that was promised to be dynamic and became a constant, and the program
ends before anything was compiled.
"""

import torch


def halves(tokens):
    return tokens.reshape(4, 2, 8)  # the 4 is the batch size


@torch.compile(backend="eager")
def pool(tokens):
    return halves(tokens.tanh()).sum(dim=1)


torch.manual_seed(0)
tokens = torch.randn(4, 16)
torch._dynamo.mark_dynamic(tokens, 0)
print(f"{pool(tokens).norm().item():.4f}")
