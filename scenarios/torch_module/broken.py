"""The model is an `nn.Sequential`, and is compiled in place by `model.compile()`.

That compiles the module's call from the outside, and Dynamo runs every frame of torch.nn as it is: the
call, the forward of the Sequential, the forwards of its layers. There is no other code. Nothing is
reported, nothing is compiled, and the program runs as fast as before.
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
model.compile(backend="eager")
for step in range(3):
    print(f"step {step}: {model(torch.randn(4, 8)).sum().item():.4f}")
