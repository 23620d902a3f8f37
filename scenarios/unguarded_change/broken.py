"""A metric hook is registered after the model's first compiled call, and never fires.

The layer had no hooks when it was traced, and torch does not guard on that. No recompile, no
break, no error: the compiled graph simply knows nothing of the hook.
"""

import torch
from torch import nn


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(8, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, features):
        return self.head(torch.relu(self.hidden(features)))


torch.manual_seed(0)
model = Regressor()
compiled = torch.compile(model, backend="eager")
mean = torch.zeros(())


def record(module, inputs, output):
    mean.copy_(output.detach().mean())


for step in range(4):
    if step == 1:
        model.hidden.register_forward_hook(record)
    out = compiled(torch.randn(4, 8))
    print(f"step {step}: {out.mean().item():.4f}, activation mean {mean.item():.4f}")
