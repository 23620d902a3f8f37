"""Some images come from a decoder that delivers channels-last memory, others do not.

Shape and dtype are the same, only the strides differ. Dynamo guards on strides, so the first
image with the other layout compiles the preprocessing again.
"""

import torch


@torch.compile(backend="eager")
def normalise(images):
    mean = images.mean(dim=(2, 3), keepdim=True)
    deviation = images.std(dim=(2, 3), keepdim=True)
    return (images - mean) / deviation


def decode(number):
    images = torch.rand(2, 3, 8, 8)
    if number % 2 == 1:
        images = images.to(memory_format=torch.channels_last)
    return images


torch.manual_seed(0)
for number in range(4):
    images = decode(number)
    print(f"batch {number}: strides {images.stride()}, max {normalise(images).max():.4f}")
