"""An experiment runner calls `torch._dynamo.reset()` between two trials.

Compile ids start again at 0/0 after a reset. Each trial compiles one function and recompiles it
once; told apart only by id, the second trial would vanish behind the first.
"""

import torch


def score(values, kind):
    return values.tanh() if kind == "soft" else values.sign()


torch.manual_seed(0)
for trial in range(2):
    torch._dynamo.reset()
    compiled = torch.compile(score, backend="eager")
    for kind in ["soft", "hard"]:
        print(f"trial {trial}: {kind} {compiled(torch.randn(8), kind).sum().item():.4f}")
