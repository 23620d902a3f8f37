"""Texts are padded to one length, a missing bias is zeros, and the mode is chosen outside."""

import enum
from dataclasses import dataclass

import torch


class Mode(enum.Enum):
    PLAIN = 1
    SHARP = 2


@dataclass
class Request:
    tokens: torch.Tensor
    bias: torch.Tensor | None
    mode: Mode


@torch.compile(backend="eager", dynamic=False)
def score(tokens, bias, real):
    return (tokens * 2.0 + bias) * real


def answer(request):
    tokens = torch.zeros(6, 8)
    real = torch.zeros(6, 1)
    tokens[: len(request.tokens)] = request.tokens
    real[: len(request.tokens)] = 1.0
    bias = torch.zeros(8) if request.bias is None else request.bias
    scores = score(tokens, bias, real)
    return (scores * scores if request.mode is Mode.SHARP else scores).sum()


print(answer(Request(torch.ones(4, 8), None, Mode.PLAIN)))
print(answer(Request(torch.ones(6, 8), None, Mode.PLAIN)))
print(answer(Request(torch.ones(6, 8), torch.ones(8), Mode.PLAIN)))
print(answer(Request(torch.ones(6, 8), torch.ones(8), Mode.SHARP)))
