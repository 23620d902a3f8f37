"""A prompt template's name is an argument, and there are many templates.

After eight of them the function hits the recompile limit. From then on it runs eager and torch
says nothing more: fifty further calls leave no trace, and a log that is read from the middle
looks perfectly healthy.
"""

import torch


@torch.compile(backend="eager")
def embed(tokens, template):
    offset = 1.0 if template.startswith("chat") else 2.0
    return tokens + offset


torch.manual_seed(0)
for request in range(60):
    out = embed(torch.ones(4), f"chat-{request}")
print(f"60 requests, last sum {out.sum().item():.1f}")
