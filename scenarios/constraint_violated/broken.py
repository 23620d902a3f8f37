"""The batch size is declared dynamic, but the code can only work for one.

A reshape with the number 4 in it pins the dimension. torch refuses to compile a size that was
promised to be dynamic and became a constant, and the program ends.
"""

import torch


@torch.compile(backend="eager")
def embed(tokens):
    return tokens.tanh()


@torch.compile(backend="eager")
def pool(tokens):
    return tokens.reshape(4, 2, 8).sum(dim=1)


torch.manual_seed(0)
tokens = embed(torch.randn(4, 16))
torch._dynamo.mark_dynamic(tokens, 0)
print(f"{pool(tokens).norm().item():.4f}")
