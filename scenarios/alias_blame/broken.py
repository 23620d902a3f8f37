"""Two hooks are methods of one recorder. The first only scales; the second reads a flag.

torch reaches the recorder through the first hook and names that path in its reason: the innocent
one. The line that reads the flag is in the second, and that is the line to change.
"""

import torch
from torch import nn


class Recorder:
    def __init__(self):
        self.gain = torch.ones(())
        self.capture = False
        self.latest = torch.zeros(())

    def scale(self, module, inputs, output):
        return output * self.gain

    def record(self, module, inputs, output):
        if self.capture:
            self.latest.copy_(output.detach().mean())


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 2)

    def forward(self, features):
        return self.second(self.first(features))


torch.manual_seed(0)
model, recorder = Model(), Recorder()
model.first.register_forward_hook(recorder.scale)
model.second.register_forward_hook(recorder.record)
compiled = torch.compile(model, backend="eager")

for step in range(4):
    recorder.capture = step % 2 == 1
    out = compiled(torch.randn(4, 8))
    print(f"step {step}: {out.sum().item():.4f}, mean {recorder.latest.item():.4f}")
