"""The reshape takes the batch size from the tensor, so the promise holds."""

import torch


def halves(tokens):
    return tokens.reshape(tokens.shape[0], 2, 8)


@torch.compile(backend="eager")
def pool(tokens):
    return halves(tokens.tanh()).sum(dim=1)


torch.manual_seed(0)
for number in [4, 6]:
    tokens = torch.randn(number, 16)
    torch._dynamo.mark_dynamic(tokens, 0)
    print(f"{number} rows: {pool(tokens).norm().item():.4f}")
