"""Requests come as one object each, with longer texts, an optional bias and a mode.

Every request is a new object, so nothing in it is state of the model: its fields are arguments. A
longer text, the first bias and the first request of the other mode compile the scorer again.
"""

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
def score(request):
    scores = request.tokens * 2.0
    if request.bias is not None:
        scores = scores + request.bias
    if request.mode is Mode.SHARP:
        scores = scores * scores
    return scores.sum()


print(score(Request(torch.ones(4, 8), None, Mode.PLAIN)))
print(score(Request(torch.ones(6, 8), None, Mode.PLAIN)))
print(score(Request(torch.ones(6, 8), torch.ones(8), Mode.PLAIN)))
print(score(Request(torch.ones(6, 8), torch.ones(8), Mode.SHARP)))
