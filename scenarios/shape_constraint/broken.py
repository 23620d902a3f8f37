"""The batch dimension is dynamic, and one day a single request arrives.

Dynamo compiles dynamic sizes for two or more and specialises on 0 and 1. The lonely request
costs a compilation of its own.
"""

import torch


@torch.compile(backend="eager")
def score(requests):
    return torch.softmax(requests @ requests.transpose(-1, -2), dim=-1).sum(dim=-1)


torch.manual_seed(0)
for number in [4, 6, 1, 5]:
    requests = torch.randn(number, 3, 8)
    if number > 1:
        torch._dynamo.maybe_mark_dynamic(requests, 0)
    print(f"{number} requests: {score(requests).sum().item():.4f}")
