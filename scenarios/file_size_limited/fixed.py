"""The limit leaves room for the files of the run: nothing is dropped."""

import resource

import torch


@torch.compile(backend="eager", dynamic=True)
def double(values):
    return values * 2.0


print(f"{double(torch.ones(4)).sum().item():.1f}")
before = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, before)
total = double(torch.ones(6)).sum()
resource.setrlimit(resource.RLIMIT_FSIZE, before)
print(f"{total.item():.1f}")
