"""A validation raises inside the compiled function, and the caller catches it.

Dynamo does not compile a frame that ends in an exception it has to deliver to the user: the
function runs eager.
"""

import torch


@torch.compile(backend="eager")
def checked(tokens):
    hidden = tokens.tanh()
    if tokens.shape[0] > 4:
        raise ValueError("too long")
    return hidden


@torch.compile(backend="eager")
def head(tokens):
    return tokens.softmax(dim=-1)


torch.manual_seed(0)
for step in range(3):
    tokens = torch.randn(6)
    try:
        tokens = checked(tokens)
    except ValueError as error:
        print(f"step {step}: {error}, head {head(tokens).max().item():.4f}")
