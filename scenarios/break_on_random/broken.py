"""A random augmentation is picked with `random.choice` inside the compiled function.

Python's random state is not part of a graph. Dynamo leaves the graph to draw the number and
continues with a second one.
"""

import random

import torch


@torch.compile(backend="eager")
def augment(image):
    centred = image - image.mean()
    gain = random.choice([1.0, 1.0, 1.0])
    return centred * gain


random.seed(0)
torch.manual_seed(0)
for step in range(3):
    print(f"step {step}: {augment(torch.rand(8)).abs().sum().item():.4f}")
