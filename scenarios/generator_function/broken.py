"""`torch.compile` is put on a generator function.

Dynamo never compiles a generator's own frame and says nothing about it: no graph, no metric, no
warning. The decorated code runs eager for ever.
"""

import torch


@torch.compile(backend="eager")
def layers(tokens):
    for gain in (0.5, 1.0, 2.0):
        tokens = (tokens * gain).tanh()
        yield tokens


@torch.compile(backend="eager")
def head(tokens):
    return tokens.softmax(dim=-1)


torch.manual_seed(0)
for step in range(3):
    outputs = list(layers(torch.randn(4)))
    print(f"step {step}: {head(outputs[-1]).max().item():.4f}")
