"""One mode for every call: the warm-up runs under `inference_mode` too."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))


@torch.compile(backend="eager")
def predict(x):
    return torch.relu(model[0](x)).sum()


batch = torch.ones(3, 4)
with torch.inference_mode():
    print(f"{predict(batch):.3f}")
with torch.inference_mode():
    print(f"{predict(batch):.3f}")
    print(f"{predict(batch):.3f}")
