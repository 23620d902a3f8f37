"""The program limits the size of files while a part of it runs, as sandboxes of untrusted code do.

The journal of the run is one of them, and is as large already: in that part every record is
dropped. How often the function was compiled is not known, and a run whose evidence has a gap is not
clean. The verdict is blind.
"""

import resource

import torch


@torch.compile(backend="eager", dynamic=True)
def double(values):
    return values * 2.0


print(f"{double(torch.ones(4)).sum().item():.1f}")
before = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (2048, before[1]))
total = double(torch.ones(4, 4)).sum()
resource.setrlimit(resource.RLIMIT_FSIZE, before)
print(f"{total.item():.1f}")
