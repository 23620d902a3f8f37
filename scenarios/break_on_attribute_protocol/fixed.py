"""The configuration is a plain dataclass: attributes are attributes."""

from dataclasses import dataclass

import torch


@dataclass
class Config:
    gain: float


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
