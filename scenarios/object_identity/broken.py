"""An augmentation is handed to the compiled function as a callable.

Every callable with other code is a new compilation, because Dynamo traces into it. Three
augmentations, three graphs; the fourth somebody adds will be one more.
"""

import torch


def brighten(image):
    return image + 0.1


def darken(image):
    return image - 0.1


def invert(image):
    return 1.0 - image


@torch.compile(backend="eager")
def augment(image, change):
    return change(image).clamp(0.0, 1.0)


torch.manual_seed(0)
for step, change in enumerate([brighten, darken, invert, brighten, darken, invert]):
    print(f"step {step}: {change.__name__} {augment(torch.rand(3, 8, 8), change).mean():.4f}")
