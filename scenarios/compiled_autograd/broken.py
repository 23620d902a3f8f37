"""Compiled autograd captures the backward graph, and the loss grows a new term twice.

Each new term brings new nodes into the autograd graph, so the capture of the steps before does
not fit and the backward is captured and compiled again.
"""

import torch
from torch import nn
from torch._dynamo import compiled_autograd

torch.manual_seed(0)
model = nn.Linear(8, 4)
backward_compiler = torch.compile(backend="eager")


@torch.compile(backend="eager")
def loss_of(batch):
    return model(batch).square().mean()


for parameter in model.parameters():
    parameter.grad = torch.zeros_like(parameter)

for step in range(6):
    loss = loss_of(torch.randn(6, 8))
    if step >= 2:
        loss = loss + model.weight.abs().sigmoid().sum()
    if step >= 4:
        loss = loss + model.bias.tanh().sum()
    with compiled_autograd._enable(backward_compiler):
        loss.backward()
    model.zero_grad(set_to_none=False)
    print(f"step {step}: loss {loss.item():.4f}")
