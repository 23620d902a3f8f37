"""An activation metric is collected every second step.

The hook reads a flag of the function around it. Dynamo follows the hook into its closure and
guards on the flag, so the whole model is compiled again when the cadence raises it. Both states
are cached after that: the spike comes once and looks like a one-off.
"""

import torch
from torch import nn


def watch_activations(layer):
    capture = False
    latest = {"mean": torch.zeros(())}

    def record(module, inputs, output):
        if capture:
            latest["mean"] = output.detach().mean()

    def set_capture(value):
        nonlocal capture
        capture = value

    layer.register_forward_hook(record)
    return latest, set_capture


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(8, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, features):
        return self.head(torch.relu(self.hidden(features)))


torch.manual_seed(0)
model = Classifier()
latest, set_capture = watch_activations(model.hidden)
compiled = torch.compile(model, backend="eager")

for step in range(6):
    set_capture(step % 2 == 1)
    loss = compiled(torch.randn(4, 8)).square().mean()
    print(f"step {step}: loss {loss.item():.4f}, activation mean {latest['mean'].item():.4f}")
