"""What depends on the template's name is decided before the compiled region."""

import torch


@torch.compile(backend="eager")
def embed(tokens, offset):
    return tokens + offset


torch.manual_seed(0)
OFFSETS = {True: torch.tensor(1.0), False: torch.tensor(2.0)}
for request in range(60):
    template = f"chat-{request}"
    out = embed(torch.ones(4), OFFSETS[template.startswith("chat")])
print(f"60 requests, last sum {out.sum().item():.1f}")
