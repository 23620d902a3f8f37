"""A model with adapters is switched from one language to another in the middle of training.

One call does it: `set_adapter` stores the name in every adapted layer, and lets only the
parameters of that adapter learn. torch guards the name of each layer and the requires_grad of each
parameter: many guards are false, for one reason.
"""

import torch
from torch import nn

LANGUAGES = ("en", "de")


class AdaptedLinear(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.base = nn.Linear(size, size)
        self.adapters = nn.ModuleDict({name: nn.Linear(size, size) for name in LANGUAGES})
        self.set_adapter("en")

    def set_adapter(self, name):
        for other, adapter in self.adapters.items():
            adapter.requires_grad_(other == name)
        self.active = name

    def forward(self, x):
        return self.base(x) + self.adapters[self.active](x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = AdaptedLinear(8)
        self.decoder = AdaptedLinear(8)

    def set_adapter(self, name):
        self.encoder.set_adapter(name)
        self.decoder.set_adapter(name)

    def forward(self, x):
        return self.decoder(torch.relu(self.encoder(x)))


torch.manual_seed(0)
model = Model()
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    if step == 3:
        model.set_adapter("de")
    loss = compiled(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"{step}: {loss.item():.3f}")
