"""A configuration object answers every unknown attribute with `__getattribute__`.

Dynamo models plain attributes, not an object that runs code of its own for each of them. The
function that reads the configuration runs eager.
"""

import torch


class Config:
    def __init__(self, **values):
        object.__setattr__(self, "values", values)

    def __getattribute__(self, name):
        values = object.__getattribute__(self, "values")
        return values[name] if name in values else object.__getattribute__(self, name)


@torch.compile(backend="eager")
def scale(tokens, config):
    return tokens * config.gain


@torch.compile(backend="eager")
def head(tokens):
    return tokens.softmax(dim=-1)


torch.manual_seed(0)
config = Config(gain=2.0)
for step in range(3):
    print(f"step {step}: {head(scale(torch.randn(4), config)).max().item():.4f}")
