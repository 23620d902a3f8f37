"""A hook keeps the first attention map it sees as a reference.

The stash is a dict that starts empty and is filled by the first call. Dynamo guards on the keys
it saw while tracing, so the call that fills the stash also makes its own compilation invalid:
the second step compiles the model again.
"""

import torch
from torch import nn


def keep_reference(layer):
    stash = {}

    def compare(module, inputs, output):
        if "reference" in stash:
            stash["drift"] = (output.detach() - stash["reference"]).abs().mean()
        else:
            stash["reference"] = output.detach()
            stash["drift"] = torch.zeros(())

    layer.register_forward_hook(compare)
    return stash


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(8, 8)

    def forward(self, tokens):
        return torch.softmax(self.query(tokens) @ tokens.transpose(-1, -2), dim=-1)


torch.manual_seed(0)
model = Scorer()
stash = keep_reference(model.query)
compiled = torch.compile(model, backend="eager")

for step in range(5):
    scores = compiled(torch.randn(4, 8))
    print(f"step {step}: scores {scores.sum().item():.2f}, drift {stash['drift'].item():.4f}")
