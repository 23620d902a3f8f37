"""Both terms are part of every step, with a weight of zero where they are not wanted.

The autograd graph has the same nodes throughout, and its one capture is used again.
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
    first, second = torch.tensor(float(step >= 2)), torch.tensor(float(step >= 4))
    loss = loss_of(torch.randn(6, 8))
    loss = loss + first * model.weight.abs().sigmoid().sum() + second * model.bias.tanh().sum()
    with compiled_autograd._enable(backward_compiler):
        loss.backward()
    model.zero_grad(set_to_none=False)
    print(f"step {step}: loss {loss.item():.4f}")
