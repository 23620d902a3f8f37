"""Two independent switches are strings, and a run has used six of their nine combinations.

Nothing has hit the limit yet. But every combination is a graph of its own, nine are possible,
and torch keeps eight: the run that meets the ninth will fall back to eager, silently.
"""

import torch


@torch.compile(backend="eager")
def layer(tokens, activation, norm):
    hidden = getattr(torch, activation)(tokens)
    if norm == "l2":
        return hidden / hidden.norm()
    if norm == "max":
        return hidden / hidden.abs().max()
    return hidden


USED = [
    ("relu", "none"),
    ("relu", "l2"),
    ("tanh", "none"),
    ("tanh", "max"),
    ("sigmoid", "l2"),
    ("sigmoid", "max"),
]

torch.manual_seed(0)
for step, (activation, norm) in enumerate(USED):
    print(f"step {step}: {activation} {norm} {layer(torch.rand(8), activation, norm).sum():.4f}")
