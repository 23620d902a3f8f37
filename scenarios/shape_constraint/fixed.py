"""A lonely request is padded with a second row, and the second answer is dropped.

The compiled function never sees a size below two, so one dynamic graph serves every batch.
"""

import torch
from torch.nn import functional as F


@torch.compile(backend="eager")
def score(requests):
    return torch.softmax(requests @ requests.transpose(-1, -2), dim=-1).sum(dim=-1)


torch.manual_seed(0)
for number in [4, 6, 1, 5]:
    requests = torch.randn(number, 3, 8)
    padded = F.pad(requests, (0, 0, 0, 0, 0, max(0, 2 - number)))
    torch._dynamo.maybe_mark_dynamic(padded, 0)
    print(f"{number} requests: {score(padded)[:number].sum().item():.4f}")
